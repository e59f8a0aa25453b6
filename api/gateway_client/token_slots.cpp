#include "api/gateway_client/token_slots.hpp"

#include <algorithm>
#include <optional>

namespace openshell::api {
namespace {

using namespace std::chrono_literals;

constexpr auto kShortestWait = 1s;
constexpr auto kLongestWait = 12h;
constexpr auto kWaitWithoutExpiry = 6h;

bool never(const Bearer& bearer) { return bearer.expires == std::chrono::sys_seconds{}; }

absl::StatusOr<Secret> authorization(const Bearer& bearer, TokenSlots::Now now, const char* whose) {
  if (!never(bearer) && now >= bearer.expires) return absl::UnauthenticatedError(std::string{"the "} + whose + " token has expired");
  return Secret{"Bearer " + std::string{bearer.token.reveal()}};
}

}  // namespace

absl::StatusOr<Secret> TokenSlots::gateway_authorization(Now now) const {
  const std::lock_guard lock{mutex_};
  return authorization(pair_.gateway, now, "gateway");
}

absl::StatusOr<Secret> TokenSlots::sandbox_authorization(Now now) const {
  const std::lock_guard lock{mutex_};
  return authorization(pair_.sandbox, now, "sandbox");
}

absl::Status TokenSlots::replace(TokenPair renewed) {
  const std::lock_guard lock{mutex_};
  if (renewed.gateway.token.empty() || renewed.sandbox.token.empty())
    return absl::InvalidArgumentError("token renewal: one of the two tokens is missing");
  if (renewed.session_id != pair_.session_id) return absl::InvalidArgumentError("token renewal: the tokens are for another session");
  if (renewed.epoch < pair_.epoch) return absl::InvalidArgumentError("token renewal: the credential epoch goes back");
  pair_ = std::move(renewed);
  ++renewals_;
  return absl::OkStatus();
}

std::chrono::seconds TokenSlots::until_renewal(Now now, double jitter) const {
  const std::lock_guard lock{mutex_};
  std::optional<std::chrono::seconds> left;
  for (const auto* bearer : {&pair_.gateway, &pair_.sandbox}) {
    if (never(*bearer)) continue;
    const auto life = std::chrono::floor<std::chrono::seconds>(bearer->expires - now);
    left = left ? std::min(*left, life) : life;
  }
  std::chrono::seconds wait = left ? std::chrono::seconds{left->count() * 4 / 5} : kWaitWithoutExpiry;
  wait = std::clamp<std::chrono::seconds>(wait, kShortestWait, kLongestWait);
  const auto less = static_cast<std::int64_t>(static_cast<double>(wait.count()) * 0.09 * std::clamp(jitter, 0.0, 1.0));
  return std::max<std::chrono::seconds>(wait - std::chrono::seconds{less}, kShortestWait);
}

std::uint64_t TokenSlots::renewals() const {
  const std::lock_guard lock{mutex_};
  return renewals_;
}

std::uint64_t TokenSlots::epoch() const {
  const std::lock_guard lock{mutex_};
  return pair_.epoch;
}

}  // namespace openshell::api
