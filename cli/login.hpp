// How this user gets a token from the gateway's identity provider, as far as it needs no browser on this machine.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "cli/oidc_token.hpp"
#include "cli/registration.hpp"

namespace openshell::cli {

/// OPENSHELL_OIDC_CLIENT_SECRET set: client credentials (RFC 6749 4.4). OPENSHELL_NO_BROWSER set: a code that the user enters elsewhere
/// (device authorization, RFC 8628, with PKCE), printed on stderr and waited for. Neither: UNIMPLEMENTED, which says so.
absl::StatusOr<TokenBundle> log_in(const Registration& gateway, bool insecure);

/// By the refresh token, else by client credentials where the secret is in the environment.
absl::StatusOr<TokenBundle> renew(const Registration& gateway, const TokenBundle& bundle, bool insecure);

/// ` as NAME` from the token's own claims, unverified; empty where it has none.
std::string shown_user(const TokenBundle& bundle);

}  // namespace openshell::cli
