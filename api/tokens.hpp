// Tokens of one sandbox launch: made and checked with one Ed25519 key (RFC 8037). The gateway takes the gateway token, the sandbox runtime
// takes the boundary token; both go to the supervisor and to nobody else.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/secret.hpp"
#include "messages/values.hpp"

namespace openshell::api {

/// What a token says besides its kind. Times in Unix seconds.
struct TokenClaims {
  SandboxId sandbox;
  GenerationId generation;
  std::uint64_t auth_epoch = 1;  ///< from 1, one more with every start
  std::string token_id;          ///< `jti`, a UUID
  std::int64_t issued_at = 0;
  std::int64_t expires_at = 0;  ///< 0: does not expire
};

enum class TokenKind {
  kGateway,   ///< typ openshell-gateway-session+jwt, aud = iss
  kBoundary,  ///< typ openshell-sandbox-session+jwt, aud openshell-sandbox
};

/// Where the three files of a signing key lie, and how long tokens live.
struct TokenConfig {
  std::string signing_key_path;
  std::string public_key_path;
  std::string kid_path;
  std::string gateway_id = "openshell";     ///< no white space
  std::optional<std::chrono::seconds> ttl;  ///< 60..3600 s; absent: tokens do not expire
};

/// Seconds of clock difference that are forgiven.
constexpr std::int64_t kTokenLeewaySeconds = 30;
/// A token longer than this is not looked at.
constexpr std::size_t kMaxTokenBytes = 4096;

/// The public half, for the sandbox runtime's bootstrap.
struct VerificationKey {
  std::string key_id;
  std::string public_key_pem;
};

/// Everything a supervisor and its sandbox runtime need to know each other and the gateway: the JSON that drivers hand on. The runtime
/// never gets `supervisor`.
struct LaunchAuthentication {
  std::string session_id;  ///< correlates the two ends, authorises nothing; = runtime generation
  GenerationId generation;
  std::uint64_t auth_epoch = 1;
  Secret gateway_token;
  std::int64_t gateway_expires_at = 0;
  Secret boundary_token;
  std::int64_t boundary_expires_at = 0;
  std::string gateway_id;
  std::vector<VerificationKey> verification_keys;
  /// `{"supervisor":{"session_id",...,"gateway_token",...},"gateway_id","verification_keys":[...]}`. A secret: it holds both tokens.
  [[nodiscard]] Secret to_json() const;
};

/// Thread-safe; immutable after load().
class TokenAuthority {
 public:
  /// Reads the three files, proves with a probe token that they belong together. Messages name the file, never what is in it.
  static absl::StatusOr<std::unique_ptr<TokenAuthority>> load(const TokenConfig& config);
  virtual ~TokenAuthority() = default;

  /// Signs. `issued_at` and `expires_at` of the claims are taken as they are.
  [[nodiscard]] virtual Secret sign(TokenKind kind, const TokenClaims& claims) const = 0;
  /// Checks signature, header, claims and times, not the record. UNAUTHENTICATED `invalid gateway session: <reason>`. NOT_FOUND where the
  /// text is no token of ours at all (another `typ`, no JWT): another authenticator may take it.
  [[nodiscard]] virtual absl::StatusOr<TokenClaims> verify(TokenKind kind, std::string_view token, std::int64_t now) const = 0;
  /// New tokens of a launch: `gateway_token_id` becomes the `jti` of the gateway token and belongs into the sandbox's record in the same
  /// write.
  [[nodiscard]] virtual LaunchAuthentication launch(const SandboxId& sandbox, const GenerationId& generation, std::uint64_t auth_epoch,
                                                    const std::string& gateway_token_id, std::int64_t now) const = 0;
  /// `exp` for a token made at `now`: 0 where tokens do not expire.
  [[nodiscard]] virtual std::int64_t expiry(std::int64_t now) const = 0;
  [[nodiscard]] virtual const std::string& gateway_id() const = 0;
  [[nodiscard]] virtual std::vector<VerificationKey> verification_keys() const = 0;
};

}  // namespace openshell::api
