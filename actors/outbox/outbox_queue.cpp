#include "actors/outbox/outbox_queue.hpp"

#include <algorithm>
#include <cassert>

namespace openshell::supervisor {

void OutboxQueue::push(PolicyStatus status) {
  if (waiting_.size() >= limits_.capacity) {
    const auto oldest = waiting_.begin() + (in_flight_ ? 1 : 0);
    if (oldest == waiting_.end()) {
      ++dropped_;
      return;
    }
    waiting_.erase(oldest);
    ++dropped_;
  }
  waiting_.push_back(std::move(status));
}

std::optional<PolicyStatus> OutboxQueue::offer() {
  if (in_flight_ || backing_off_ || waiting_.empty()) return std::nullopt;
  in_flight_ = true;
  return waiting_.front();
}

void OutboxQueue::settled() {
  assert(in_flight_ && !waiting_.empty());
  waiting_.pop_front();
  in_flight_ = false;
  failures_ = 0;
}

OutboxQueue::Duration OutboxQueue::failed() {
  assert(in_flight_);
  in_flight_ = false;
  backing_off_ = true;
  const auto doublings = std::min(failures_++, 20U);  // 2^20 s is beyond any cap and still fits
  return std::min(limits_.first_backoff * (1 << doublings), limits_.longest_backoff);
}

}  // namespace openshell::supervisor
