#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace openshell::supervisor {

/// One thread that runs short functions later: deadlines of relays, pauses of the boundary client. Actors use their own clock instead.
class TimerThread {
 public:
  TimerThread() : thread_{[this] { run(); }} {}
  ~TimerThread() {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  TimerThread(const TimerThread&) = delete;
  TimerThread& operator=(const TimerThread&) = delete;

  /// `work` must only post onwards. Not run when the thread ends first.
  void after(std::chrono::milliseconds delay, std::function<void()> work) {
    {
      const std::lock_guard lock{mutex_};
      due_.emplace(std::chrono::steady_clock::now() + delay, std::move(work));
    }
    wake_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock{mutex_};
    while (!stopping_) {
      if (due_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const auto next = due_.begin()->first;
      if (std::chrono::steady_clock::now() < next) {
        wake_.wait_until(lock, next);
        continue;
      }
      const auto work = std::move(due_.extract(due_.begin()).mapped());
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> due_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace openshell::supervisor
