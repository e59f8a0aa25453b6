#include "api/oidc/key_schedule.hpp"

namespace openshell::oidc {

void KeySchedule::started(Clock::time_point now) {
  fetching_ = true;
  last_start_ = now;
}

void KeySchedule::succeeded(Clock::time_point now) {
  fetching_ = troubled_ = false;
  good_ = now;
}

void KeySchedule::failed() {
  fetching_ = false;
  troubled_ = true;
}

bool KeySchedule::usable(Clock::time_point now) const { return good_ && now - *good_ <= kGraceFactor * lifetime_; }

bool KeySchedule::stale(Clock::time_point now) const { return !good_ || now - *good_ > lifetime_; }

bool KeySchedule::may_fetch(Clock::time_point now) const { return !fetching_ && (!last_start_ || now - *last_start_ >= kFetchSpacing); }

}  // namespace openshell::oidc
