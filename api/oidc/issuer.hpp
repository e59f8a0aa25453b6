// Users by bearer tokens of one OpenID Connect issuer. Keeps the issuer's keys, fetches them anew when they are old or a token names an
// unknown one, and tells who a token's bearer is. Who can not be checked is refused.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/call_context.hpp"
#include "api/oidc/claims.hpp"

namespace openshell::oidc {

/// Callers that wait for keys at once; more are refused.
constexpr std::size_t kMaxWaiting = 1024;

struct IssuerConfig {
  std::string issuer;
  std::string audience = "openshell-cli";
  std::string ca_pem;  ///< besides the roots of the platform; for discovery and keys
  std::chrono::seconds key_lifetime{3600};
  std::vector<std::string> key_origins;  ///< where keys may lie besides the issuer's own origin
  bool loopback_http = false;            ///< `http://` on a numeric loopback address
  std::string roles_claim = "realm_access.roles";
  std::string scopes_claim;
};

/// Thread-safe. A thread of its own fetches, so that nobody else blocks.
class Issuer {
 public:
  /// Discovery and the first key set, on the calling thread (10 s each at most). FAILED_PRECONDITION `OIDC initialization failed: ...`.
  static absl::StatusOr<std::unique_ptr<Issuer>> start(const IssuerConfig& config);
  virtual ~Issuer() = default;

  /// `then` gets the identity, or UNAUTHENTICATED `invalid token: ...`, or INTERNAL `OIDC key refresh failed` where no key can be had; on
  /// the calling thread where the key is at hand, else on the fetching one. It must not block. At destruction who still waits gets
  /// UNAVAILABLE.
  virtual void identify(std::string_view token, std::function<void(absl::StatusOr<api::Identity>)> then) = 0;
};

}  // namespace openshell::oidc
