// The bearer token that this user holds for one gateway: oidc_token.json beside its registration, which the published Python package reads
// and renews as well.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/registration.hpp"
#include "messages/secret.hpp"

namespace openshell::cli {

/// A token that ends within this many seconds is renewed before it is used.
constexpr std::int64_t kRenewBeforeSeconds = 30;

struct TokenBundle {
  Secret access_token;
  Secret refresh_token;                    ///< empty: none
  std::optional<std::int64_t> expires_at;  ///< Unix seconds; absent: taken for valid
  std::string issuer;
  std::string client_id;
};

/// NOT_FOUND where there is none that can be read.
absl::StatusOr<TokenBundle> read_bundle(const Registry& registry, const std::string& gateway);
/// Mode 0600, replaced as a whole; a mark that the next login shall ask anew goes.
absl::Status store_bundle(const Registry& registry, const std::string& gateway, const TokenBundle& bundle);

/// Text of the file, and back. INVALID_ARGUMENT never quotes what is in it.
Secret to_json(const TokenBundle& bundle);
absl::StatusOr<TokenBundle> parse_bundle(std::string_view text);

/// The token to send with every call to `gateway`. Renews it where it is about to end, and stores it. FAILED_PRECONDITION says what to run.
/// Says on stderr where a token is used that could not be renewed.
absl::StatusOr<Secret> bearer_for(const Registry& registry, const Registration& gateway, bool insecure);

}  // namespace openshell::cli
