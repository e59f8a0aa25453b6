// `[openshell.gateway.oidc]` and its flags, merged and checked.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>

#include "api/oidc/issuer.hpp"
#include "programs/gateway/command_line.hpp"
#include "programs/gateway/settings_file.hpp"

namespace openshell::gateway {

struct OidcConfig {
  oidc::IssuerConfig issuer;
  std::string admin_role;  ///< both roles empty: whoever has a token may do everything
  std::string user_role;
};

/// Absent: no issuer is named, OIDC is off. Reads the CA bundle, asks nobody.
absl::StatusOr<std::optional<OidcConfig>> merge_oidc(const CommandLine& flags, const std::optional<OidcTable>& table);

}  // namespace openshell::gateway
