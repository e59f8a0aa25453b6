#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

namespace openshell {

/// How long messages wait in one mailbox, which itself knows no times: while something waits, the actor has a message of its own, the
/// probe, in the same queue, and its age is the answer. What is behind it is younger, so the figure is a lower bound, and at most one
/// probe's wait behind the truth. Pure; used on its actor only.
class MailboxAge {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  /// Between two probes of an actor that is never idle.
  static constexpr std::chrono::milliseconds kPace{100};

  /// After a message, with `waiting` ones behind it (the probe included). True: send a probe now. `certainly`: whatever the pace.
  [[nodiscard]] bool wants_probe(std::size_t waiting, TimePoint now, bool certainly);
  /// The probe arrived.
  void probed(TimePoint now);

  /// Of `waiting` messages, those that are no probe.
  [[nodiscard]] std::size_t others(std::size_t waiting) const { return sent_ && waiting > 0 ? waiting - 1 : waiting; }
  /// Of the oldest of `waiting` messages; at least 1 ms where there is one.
  [[nodiscard]] std::chrono::milliseconds oldest(std::size_t waiting, TimePoint now) const;

 private:
  std::optional<TimePoint> sent_;                  // the probe is under way since
  std::optional<TimePoint> last_;                  // the last one was sent
  std::chrono::steady_clock::duration waited_{0};  // the last one that arrived, unless nothing waited since
};

}  // namespace openshell
