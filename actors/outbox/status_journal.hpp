#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/outbox/outbox_queue.hpp"

namespace openshell::supervisor {

/// Between RuntimePublisher and StatusOutbox: what was published and the gateway does not know yet. It outlives the outbox, whose mailbox
/// would die with it. RuntimePublisher is the only one who pushes, so the order of the pushes is the order of the publications. Any thread.
class StatusJournal {
 public:
  using Duration = OutboxQueue::Duration;

  StatusJournal() = default;
  explicit StatusJournal(OutboxQueue::Limits limits) : queue_{limits} {}

  /// Who is told of every push: the outbox that lives now.
  void on_push(std::function<void()> wake) {
    const std::lock_guard lock{mutex_};
    wake_ = std::move(wake);
  }

  void push(PolicyStatus status) {
    std::function<void()> wake;
    {
      const std::lock_guard lock{mutex_};
      queue_.push(std::move(status));
      wake = wake_;
    }
    if (wake) wake();
  }

  /// A new outbox begins: what was in flight is offered again. The gateway takes a repeated status without effect.
  void take_over() {
    const std::lock_guard lock{mutex_};
    queue_.take_over();
  }

  [[nodiscard]] std::optional<PolicyStatus> offer() {
    const std::lock_guard lock{mutex_};
    return queue_.offer();
  }
  void settled() {
    const std::lock_guard lock{mutex_};
    queue_.settled();
  }
  [[nodiscard]] Duration failed() {
    const std::lock_guard lock{mutex_};
    return queue_.failed();
  }
  void resume() {
    const std::lock_guard lock{mutex_};
    queue_.resume();
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock{mutex_};
    return queue_.size();
  }
  [[nodiscard]] std::uint64_t dropped() const {
    const std::lock_guard lock{mutex_};
    return queue_.dropped();
  }

 private:
  mutable std::mutex mutex_;
  OutboxQueue queue_;
  std::function<void()> wake_;
};

}  // namespace openshell::supervisor
