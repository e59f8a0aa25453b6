// A bearer token as its issuer signed it: JWS compact form (RFC 7515) around JSON claims (RFC 7519). Taken apart, not yet believed.
#pragma once

#include <absl/status/statusor.h>

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

namespace openshell::oidc {

/// A token longer than this is not looked at. gRPC takes 16 KiB of metadata in all.
constexpr std::size_t kMaxBearerBytes = 16 * 1024;
/// Nested objects of claims; a role claim is a path through them.
constexpr std::size_t kMaxClaimDepth = 16;

struct SignedToken {
  std::string algorithm;  ///< what the header says; compared with the key's, never followed
  std::string key_id;
  boost::json::object claims;
  std::string signed_text;  ///< header and claims as sent, over which the signature goes
  std::string signature;    ///< raw bytes
};

/// UNAUTHENTICATED `invalid token` for what is no such token, `invalid token: missing kid` for one that names no key. Never quotes the
/// token.
absl::StatusOr<SignedToken> take_apart(std::string_view compact);

/// Unpadded base64url, one spelling per value. INVALID_ARGUMENT otherwise.
absl::StatusOr<std::string> decode_base64url(std::string_view text);

/// The claims of a token that nobody verified: for showing a name, never for deciding. Empty where it can not be read.
boost::json::object unverified_claims(std::string_view compact);

}  // namespace openshell::oidc
