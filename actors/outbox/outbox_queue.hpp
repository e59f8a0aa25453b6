#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// The order of policy statuses, the pace at which they are offered, and which of them are on disk. Pure: no clock, no actor, no I/O.
///
/// At most one status is in flight, always the oldest. It leaves the queue when the gateway took it or refused it for good; until then
/// nothing behind it moves, so no status overtakes an older one. [ACK-28, ACK-29]
///
/// With a journal a status is written before it is offered. The oldest `window` are in memory, what is behind them is on disk only and
/// read back in order, and what came last waits in memory until it is written:
///
///   offered <- [ window ] <- [ on disk only ] <- [ newest ] <- push
///
/// A disk that cannot be written holds nothing up: what is in memory is offered from there. [ACK-47, ACK-48]
class OutboxQueue {
 public:
  using Duration = std::chrono::milliseconds;
  using Numbered = std::pair<std::uint64_t, PolicyStatus>;  ///< with its sequence in the journal

  struct Limits {
    std::size_t window = 1'024;     ///< statuses in memory of those that are on disk too
    std::size_t capacity = 65'536;  ///< statuses in memory in all; beyond it the oldest that is not in flight is dropped and counted
    std::size_t batch = 64;         ///< statuses of one write: a file's worth of the longest
    Duration first_backoff{1'000};
    Duration longest_backoff{32'000};
  };

  OutboxQueue() : OutboxQueue{Limits{}, false} {}
  /// `journaled` false: there is no disk, everything is offered from memory.
  explicit OutboxQueue(Limits limits, bool journaled = false) : limits_{limits}, journaled_{journaled}, in_memory_{!journaled} {}

  void push(PolicyStatus status);

  // ---- delivery

  /// Takes the head in flight; nothing while one is in flight, while a back-off runs, or while the head is not on disk yet.
  [[nodiscard]] std::optional<PolicyStatus> offer();
  /// The gateway stored the one in flight, or refused it for good. Its sequence, to be marked done, where it is on disk.
  std::optional<std::uint64_t> settled();
  /// Delivery failed; the head stays. Returns how long to wait until `resume`: doubling, capped.
  [[nodiscard]] Duration failed();
  void resume() { backing_off_ = false; }

  // ---- disk

  /// What is to be written now, in order. Empty while a write is under way, or after one that failed until `retry`.
  [[nodiscard]] std::vector<PolicyStatus> take_unwritten();
  /// The write succeeded, under sequences from `first` on. Those that were delivered meanwhile from memory come back, to be marked done.
  std::vector<std::uint64_t> written(std::uint64_t first);
  /// It failed. Statuses are offered from memory until a write succeeds.
  void not_written();
  /// It takes too long: the same, but its answer still counts.
  void late() { in_memory_ = true; }
  /// A failed write may be tried again.
  void retry() { given_up_ = false; }
  /// A journal was opened that holds undelivered statuses of a process before, from sequence `first` to `last`: they go first.
  /// Only the first time: there is one process before.
  void adopt(std::uint64_t first, std::uint64_t last, std::uint64_t count);
  /// From which sequence on to read back; nothing while a read is under way or nothing has to be read.
  [[nodiscard]] std::optional<std::uint64_t> take_missing();
  /// Empty: what should be on disk is not there any more.
  void read_back(std::vector<Numbered> statuses);
  void not_read() { reading_ = false; }

  /// Another outbox goes on with it: nothing is in flight, no write, no read, no back-off runs.
  void take_over();
  /// Another writer goes on: its predecessor answers no more.
  void disk_restarted();

  [[nodiscard]] std::size_t size() const { return window_.size() + newest_.size() + static_cast<std::size_t>(on_disk_); }
  [[nodiscard]] std::size_t in_memory() const { return window_.size() + newest_.size(); }
  [[nodiscard]] std::size_t unjournaled() const;  ///< in memory only
  [[nodiscard]] bool journaled() const { return journaled_; }
  [[nodiscard]] bool disk_fails() const { return journaled_ && in_memory_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  struct Entry {
    PolicyStatus status;
    std::uint64_t number = 0;  // of the push
    std::uint64_t seq = 0;     // in the journal; 0: not there
  };

  Entry* find(std::uint64_t number);
  void forget(std::uint64_t number, std::uint64_t seq);
  void refill();
  bool drop_oldest();

  Limits limits_;
  bool journaled_;
  std::deque<Entry> window_;  // front is the oldest; in flight or not, it is here until settled
  std::deque<Entry> newest_;
  std::uint64_t on_disk_ = 0;  // statuses between the two
  std::uint64_t disk_first_ = 0, disk_last_ = 0;
  std::vector<std::uint64_t> writing_;      // push numbers of the write under way
  std::vector<std::size_t> settled_early_;  // places in `writing_` that were settled or dropped before the write ended
  std::uint64_t pushes_ = 0;
  bool adopted_ = false;
  bool in_flight_ = false;
  bool backing_off_ = false;
  bool in_memory_;         // offered without being on disk
  bool given_up_ = false;  // a write failed; not before `retry` or the next push
  bool reading_ = false;
  unsigned failures_ = 0;  // in a row, of the head
  std::uint64_t dropped_ = 0;
};

}  // namespace openshell::supervisor
