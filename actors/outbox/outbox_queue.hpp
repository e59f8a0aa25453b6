#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// The order of policy statuses and the pace at which they are offered. Pure: no clock, no actor, no I/O.
///
/// At most one status is in flight, always the oldest. It leaves the queue when the gateway took it or refused it for good; until then
/// nothing behind it moves, so no status overtakes an older one. [ACK-28, ACK-29]
class OutboxQueue {
 public:
  using Duration = std::chrono::milliseconds;

  struct Limits {
    std::size_t capacity = 65'536;  ///< statuses in memory; beyond it the oldest that is not in flight is dropped and counted
    Duration first_backoff{1'000};
    Duration longest_backoff{32'000};
  };

  OutboxQueue() : OutboxQueue{Limits{}} {}
  explicit OutboxQueue(Limits limits) : limits_{limits} {}

  void push(PolicyStatus status);

  /// Takes the head in flight; nothing while one is in flight, while a back-off runs, or when the queue is empty.
  [[nodiscard]] std::optional<PolicyStatus> offer();

  /// The gateway stored the one in flight, or refused it for good.
  void settled();

  /// Delivery failed; the head stays. Returns how long to wait until `resume`: doubling, capped.
  [[nodiscard]] Duration failed();
  void resume() { backing_off_ = false; }

  /// Another outbox goes on with it: nothing is in flight and no back-off runs.
  void take_over() { in_flight_ = backing_off_ = false; }

  [[nodiscard]] std::size_t size() const { return waiting_.size(); }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  Limits limits_;
  std::deque<PolicyStatus> waiting_;  // front is the oldest; in flight or not, it is here until settled
  bool in_flight_ = false;
  bool backing_off_ = false;
  unsigned failures_ = 0;  // in a row, of the head
  std::uint64_t dropped_ = 0;
};

}  // namespace openshell::supervisor
