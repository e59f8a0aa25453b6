// Who is calling: from the authorization header and the client certificate of the connection to a Principal.
// A bearer that nobody knows is refused; it never falls through to the certificate or to the local user.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/authorization.hpp"
#include "api/call_context.hpp"
#include "api/known_certificates.hpp"
#include "api/oidc/issuer.hpp"
#include "api/sandbox_identities.hpp"
#include "api/tokens.hpp"

namespace openshell::api {

/// What a connection and a request say of their sender.
struct CallFacts {
  std::string_view method;
  std::vector<std::string> authorization;  ///< every value of the header
  std::string certificate_pem;             ///< leaf that the TLS layer verified; empty: none
};

struct AuthenticationConfig {
  bool mtls_users = false;
  bool operators = false;
  bool allow_unauthenticated_users = false;
};

/// Thread-safe. Tokens, identities and issuer outlive it.
class Authenticator {
 public:
  /// `tokens` and `sandboxes` may be null: then no sandbox token is accepted. `issuer` null: no user comes by bearer.
  Authenticator(AuthenticationConfig config, const TokenAuthority* tokens, SandboxIdentities* sandboxes, oidc::Issuer* issuer = nullptr);

  /// UNAUTHENTICATED, or FAILED_PRECONDITION for a sandbox that is not active. Answers on the calling thread unless the sandbox's record
  /// or the issuer's keys have to be asked for.
  void authenticate(const CallFacts& facts, std::function<void(absl::StatusOr<Principal>)> then) const;

 private:
  absl::StatusOr<Principal> without_bearer(const CallFacts& facts) const;
  void user_by_bearer(std::string_view token, std::function<void(absl::StatusOr<Principal>)> then) const;
  void sandbox_session(const std::string& method, const TokenClaims& claims, std::function<void(absl::StatusOr<Principal>)> then) const;

  AuthenticationConfig config_;
  const TokenAuthority* tokens_;
  SandboxIdentities* sandboxes_;
  oidc::Issuer* issuer_;
  std::shared_ptr<KnownCertificates> certificates_ = std::make_shared<KnownCertificates>();
};

}  // namespace openshell::api
