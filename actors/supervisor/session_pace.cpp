#include "actors/supervisor/session_pace.hpp"

#include <algorithm>

namespace openshell::supervisor {

void SessionPace::accepted(TimePoint now, Duration interval) {
  heartbeat_ = std::max(limits_.shortest_heartbeat, interval);
  accepted_at_ = last_heard_ = now;
  established_ = true;
}

SessionPace::Duration SessionPace::ended(TimePoint now, double random) {
  if (established_ && now - accepted_at_ >= limits_.healthy) failures_ = 0;
  established_ = false;
  const auto wait = std::min(limits_.first_backoff * (1 << std::min(failures_++, 20U)), limits_.longest_backoff);
  return wait + Duration{static_cast<Duration::rep>(static_cast<double>(wait.count()) * 0.2 * std::clamp(random, 0.0, 1.0))};
}

}  // namespace openshell::supervisor
