// What an issuer says of itself (OpenID Connect Discovery 1.0): where its keys lie and where tokens are to be had.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "api/oidc/https.hpp"

namespace openshell::oidc {

struct Discovery {
  std::string issuer;
  std::string key_set_url;      ///< jwks_uri; empty: not given
  std::string token_endpoint;   ///< empty: not given
  std::string device_endpoint;  ///< RFC 8628; empty: not given
};

/// The document of `issuer`. FAILED_PRECONDITION where it belongs to another issuer (`OIDC discovery issuer mismatch: ...`, a slash at the
/// end makes no difference), is no JSON object, or came with another status than 200.
absl::StatusOr<Discovery> discover(const std::string& issuer, const HttpsOptions& options);
/// Of the document's text; separate for tests.
absl::StatusOr<Discovery> read_discovery(const std::string& issuer, std::string_view document);

}  // namespace openshell::oidc
