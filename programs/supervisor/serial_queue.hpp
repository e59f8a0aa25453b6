#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace openshell::supervisor {

/// Runs functions one after the other, in the order in which they were posted, on whichever thread posts: state that only they touch needs
/// no lock.
class SerialQueue {
 public:
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock{mutex_};
      waiting_.push_back(std::move(work));
      if (std::exchange(running_, true)) return;
    }
    while (true) {
      std::function<void()> next;
      {
        const std::lock_guard lock{mutex_};
        if (waiting_.empty()) {
          running_ = false;
          return;
        }
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      next();
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;
  bool running_ = false;
};

}  // namespace openshell::supervisor
