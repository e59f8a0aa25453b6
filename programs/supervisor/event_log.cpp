#include "programs/supervisor/event_log.hpp"

#include <utility>

namespace openshell::supervisor {

EventLog::EventLog(Write write) : write_{std::move(write)}, thread_{[this] { run(); }} {}

EventLog::~EventLog() { stop(); }

void EventLog::push(egress::ActivityEvent event) {
  const bool urgent = !event.denial_id.empty();
  std::unique_lock lock{mutex_};
  room_.wait(lock, [this] { return waiting_.size() < kMaxWaiting || stopped_; });
  if (stopped_) {
    lock.unlock();
    const std::lock_guard writing{writing_};
    std::vector<egress::ActivityEvent> one;
    one.push_back(std::move(event));
    return write_(one);
  }
  waiting_.push_back(std::move(event));
  urgent_ = urgent_ || urgent;
  if (asleep_ || urgent) wake_.notify_one();
}

void EventLog::run() {
  std::vector<egress::ActivityEvent> batch;
  std::unique_lock lock{mutex_};
  while (true) {
    asleep_ = true;
    wake_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    asleep_ = false;
    if (!stopped_ && !urgent_ && waiting_.size() < kMaxWaiting / 2) wake_.wait_for(lock, kPause, [this] { return stopped_ || urgent_; });
    urgent_ = false;
    batch.swap(waiting_);
    const bool last = stopped_;
    lock.unlock();
    room_.notify_all();
    {
      const std::lock_guard writing{writing_};
      if (!batch.empty()) write_(batch);
    }
    batch = {};  // as large as a burst was; the next one starts small
    if (last) return;
    lock.lock();
  }
}

void EventLog::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
  }
  wake_.notify_all();
  room_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace openshell::supervisor
