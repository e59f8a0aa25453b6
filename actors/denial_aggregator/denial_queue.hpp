#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// Between the egress threads and the aggregator: bounded, the oldest is dropped and counted, and the aggregator is woken once per fill.
/// Any thread.
class DenialQueue {
 public:
  static constexpr std::size_t kMaxEvents = 1'024;

  void on_fill(std::function<void()> wake) {
    const std::lock_guard lock{mutex_};
    wake_ = std::move(wake);
  }

  void push(DenialEvent event) {
    std::function<void()> wake;
    {
      const std::lock_guard lock{mutex_};
      if (events_.size() >= kMaxEvents) {
        events_.pop_front();
        ++dropped_;
      }
      if (events_.empty()) wake = wake_;
      events_.push_back(std::move(event));
    }
    if (wake) wake();
  }

  [[nodiscard]] std::deque<DenialEvent> drain() {
    const std::lock_guard lock{mutex_};
    return std::exchange(events_, {});
  }

  [[nodiscard]] std::uint64_t dropped() const {
    const std::lock_guard lock{mutex_};
    return dropped_;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<DenialEvent> events_;
  std::function<void()> wake_;
  std::uint64_t dropped_ = 0;
};

}  // namespace openshell::supervisor
