#include "actors/supervision/restart_rule.hpp"

#include <algorithm>

namespace openshell {

RestartRule::Verdict RestartRule::died(TimePoint now) {
  if (on_death_ != OnDeath::restart) return {on_death_};
  if (last_ && now - *last_ > limits_.window) recent_ = 0;
  last_ = now;
  if (++recent_ > limits_.deaths) return {OnDeath::escalate};
  ++restarts_;
  const auto doublings = std::min(recent_ - 1, 20U);
  return {OnDeath::restart, std::min<Duration>(limits_.first_backoff * (1LL << doublings), limits_.longest_backoff)};
}

}  // namespace openshell
