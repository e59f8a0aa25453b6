#include "actors/introspection/mailbox_age.hpp"

#include <algorithm>

namespace openshell {

bool MailboxAge::wants_probe(std::size_t waiting, TimePoint now, bool certainly) {
  if (others(waiting) == 0) waited_ = {};
  if (sent_ || waiting == 0) return false;
  if (!certainly && last_ && now - *last_ < kPace) return false;
  sent_ = last_ = now;
  return true;
}

void MailboxAge::probed(TimePoint now) {
  if (sent_) waited_ = now - *sent_;
  sent_.reset();
}

std::chrono::milliseconds MailboxAge::oldest(std::size_t waiting, TimePoint now) const {
  if (others(waiting) == 0) return {};
  const auto age = std::max(waited_, sent_ ? now - *sent_ : std::chrono::steady_clock::duration{0});
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(age), std::chrono::milliseconds{1});
}

}  // namespace openshell
