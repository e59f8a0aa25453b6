// The bearer on every call of the channel: a JWT signed by the gateway with Ed25519, made for one sandbox, one runtime generation and one
// credential epoch. The gateway fills SessionClaims and signs (its own room); the sandbox verifies here with the keys it was started with.
#pragma once

#include "isolation/boundary/launch_material.hpp"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::boundary {

inline constexpr std::string_view kSessionTokenType = "openshell-sandbox-session+jwt";  ///< JOSE header `typ`
inline constexpr std::string_view kSessionTokenAudience = "openshell-sandbox";          ///< claim `aud`
inline constexpr std::string_view kSessionTokenComponent = "openshell-supervisor";      ///< claim `component`
inline constexpr std::chrono::seconds kSessionTokenLeeway{30};
inline constexpr std::chrono::seconds kMinSessionTokenLife{60};
inline constexpr std::chrono::seconds kMaxSessionTokenLife{3600};
inline constexpr std::size_t kMaxSessionTokenBytes = 8'192;

/// The claims, exactly these; `iss` is "openshell-gateway:<gateway_id>", `sub` is "spiffe://openshell/sandbox/<sandbox_id>".
struct SessionClaims {
  std::string gateway_id;
  std::string sandbox_id;
  std::string runtime_generation;
  std::uint64_t auth_epoch = 1;  ///< 1 or more
  std::int64_t issued_at = 0;    ///< `iat`, Unix seconds
  std::int64_t expires_at = 0;   ///< `exp`; 0: never, only where the gateway issues such tokens
  std::string token_id;          ///< `jti`, UUID
  friend bool operator==(const SessionClaims&, const SessionClaims&) = default;
};

/// The two JSON parts of a token in the form the verifier takes, not yet base64url: `{"alg":"EdDSA","kid":...,"typ":...}` and the claims.
[[nodiscard]] std::string session_token_header(std::string_view key_id);
[[nodiscard]] std::string session_token_payload(const SessionClaims& claims);

/// Verifies with the staged keys only. Immutable after make(), so any thread may call it.
class SessionTokenVerifier {
 public:
  /// What a token must be for, besides being signed. From the bootstrap. The epoch may be higher than the bootstrap's (rotation), never
  /// lower.
  struct Expected {
    std::string gateway_id;
    std::string sandbox_id;
    std::string runtime_generation;
    std::uint64_t min_auth_epoch = 1;
  };

  /// InvalidArgument naming the key id when a key is not an Ed25519 public key in PEM.
  static absl::StatusOr<SessionTokenVerifier> make(const std::vector<VerificationKey>& keys, Expected expected);
  SessionTokenVerifier(SessionTokenVerifier&&) noexcept;
  SessionTokenVerifier& operator=(SessionTokenVerifier&&) noexcept;
  ~SessionTokenVerifier();

  /// Unauthenticated for everything that is not exactly a valid token at `now`; the message says which check, never the token.
  [[nodiscard]] absl::StatusOr<SessionClaims> verify(std::string_view token, std::chrono::sys_seconds now) const;

  /// The token of an `authorization: Bearer <token>` value; Unauthenticated for another scheme, spaces inside or nothing.
  [[nodiscard]] static absl::StatusOr<std::string_view> bearer(std::string_view authorization);

 private:
  struct State;
  explicit SessionTokenVerifier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace openshell::boundary
