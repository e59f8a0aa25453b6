#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace openshell {

/// What the root of a process does when a child dies of something else than an ordered shutdown. Stands beside the child's interface.
enum class OnDeath : std::uint8_t {
  restart,      ///< start it again from what is durable, after a backoff; too many deaths escalate
  escalate,     ///< end the process in order: another program (driver, gateway, init) decides what comes next
  fail_closed,  ///< stop all traffic first, then escalate: its death means that a decision could be wrong
};

/// The rule of one child, and the memory that it needs. Pure: the caller gives the time.
class RestartRule {
 public:
  using Duration = std::chrono::milliseconds;
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Limits {
    Duration first_backoff{100};
    Duration longest_backoff{10'000};
    unsigned deaths = 5;  // within `window`: the next one escalates
    Duration window{60'000};
  };

  struct Verdict {
    OnDeath action;
    Duration after{0};  // of a restart
  };

  explicit RestartRule(OnDeath on_death) : RestartRule{on_death, Limits{}} {}
  RestartRule(OnDeath on_death, Limits limits) : on_death_{on_death}, limits_{limits} {}

  /// The child died at `now`. A child that lived longer than the window starts with a clean slate.
  [[nodiscard]] Verdict died(TimePoint now);

  [[nodiscard]] std::uint64_t restarts() const { return restarts_; }

 private:
  OnDeath on_death_;
  Limits limits_;
  unsigned recent_ = 0;  // deaths in a row, each within the window of the one before
  std::uint64_t restarts_ = 0;
  std::optional<TimePoint> last_;
};

}  // namespace openshell
