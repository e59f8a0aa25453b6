#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "actors/outbox/journal_files.hpp"
#include "actors/outbox/outbox_queue.hpp"

namespace openshell::supervisor {

/// Between RuntimePublisher and StatusOutbox: what was published and the gateway does not know yet. It outlives the outbox, whose mailbox
/// would die with it. RuntimePublisher is the only one who pushes, so the order of the pushes is the order of the publications. Any thread;
/// nothing here waits for the disk or the gateway.
class StatusJournal {
 public:
  /// In memory only.
  StatusJournal() = default;
  /// `journaled`: statuses are offered when JournalWriter has written them.
  explicit StatusJournal(OutboxQueue::Limits limits, bool journaled = false) : queue_{limits, journaled} {}

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

  /// What the outbox asks of the queue, one step at a time: `journal.with([](OutboxQueue& queue) { return queue.offer(); })`.
  template <class Step>
  auto with(Step step) {
    const std::lock_guard lock{mutex_};
    return step(queue_);
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock{mutex_};
    return queue_.size();
  }

 private:
  mutable std::mutex mutex_;
  OutboxQueue queue_;
  std::function<void()> wake_;
};

/// The journal of a process that begins: what earlier ones could not deliver goes first. Files that cannot be opened stop nothing, they are
/// tried again with the next status. Waits for the disk.
[[nodiscard]] std::shared_ptr<StatusJournal> open_journal(JournalFiles& files, OutboxQueue::Limits limits = {});

}  // namespace openshell::supervisor
