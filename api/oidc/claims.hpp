// What a verified token says, and who its bearer is because of it.
#pragma once

#include <absl/status/statusor.h>

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>

#include "api/call_context.hpp"

namespace openshell::oidc {

/// Seconds of clock difference between issuer and gateway that are forgiven.
constexpr std::int64_t kClockLeewaySeconds = 60;

struct ClaimRules {
  std::string issuer;                              ///< compared byte for byte
  std::string audience;                            ///< `aud` is it, or a list that has it
  std::string roles_claim = "realm_access.roles";  ///< path through nested objects, parts joined by `.`
  std::string scopes_claim;                        ///< likewise; empty: scopes are not read
};

/// `now` in Unix seconds. UNAUTHENTICATED `invalid token: <reason>`; the reason names a claim, never its value.
absl::StatusOr<api::Identity> identity_of(const boost::json::object& claims, const ClaimRules& rules, std::int64_t now);

}  // namespace openshell::oidc
