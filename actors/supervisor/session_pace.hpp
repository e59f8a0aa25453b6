#pragma once

#include <chrono>
#include <cstdint>

namespace openshell::supervisor {

/// Heartbeats and reconnects of the session. Pure; times are those of the actor's clock.
class SessionPace {
 public:
  using Duration = std::chrono::milliseconds;
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Limits {
    Duration shortest_heartbeat{5'000};
    Duration first_backoff{1'000};
    Duration longest_backoff{30'000};
    Duration healthy{30'000};  ///< a session that lasted so long resets the back-off
    int silent_intervals = 3;  ///< without a heartbeat of the gateway: the stream is dead
  };

  SessionPace() : SessionPace{Limits{}} {}
  explicit SessionPace(Limits limits) : limits_{limits} {}

  /// The gateway accepted; `interval` 0: not said.
  void accepted(TimePoint now, Duration interval);
  void heard(TimePoint now) { last_heard_ = now; }
  [[nodiscard]] Duration heartbeat() const { return heartbeat_; }
  [[nodiscard]] bool silent(TimePoint now) const { return now - last_heard_ > heartbeat_ * limits_.silent_intervals; }
  /// The stream ended. How long to wait before the next: doubling, up to 20 % more by `random` in 0..1.
  [[nodiscard]] Duration ended(TimePoint now, double random);
  [[nodiscard]] unsigned attempts() const { return failures_; }

 private:
  Limits limits_;
  Duration heartbeat_{5'000};
  TimePoint accepted_at_{};
  TimePoint last_heard_{};
  bool established_ = false;
  unsigned failures_ = 0;
};

}  // namespace openshell::supervisor
