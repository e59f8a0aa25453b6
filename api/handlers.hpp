// The handlers that need no sandbox: who and what the gateway is, launch tokens, providers. Each function adds its methods to the router.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/sandbox_identities.hpp"
#include "api/service.hpp"
#include "api/tokens.hpp"
#include "providers/credential_store.hpp"
#include "storage/store.hpp"

namespace openshell::providers {
struct Environment;
}
namespace openshell::v1 {
class GetSandboxProviderEnvironmentResponse;
}

namespace openshell::api {

/// What GetGatewayInfo says of the compute driver.
struct DriverInfo {
  std::string configured_name;
  std::string driver_name;
  std::string driver_version;
  bool cpu_limit = false;
  bool memory_limit = false;
  bool gpu_default_selection = false;
  bool gpu_count_selection = false;
};

struct GatewayInfo {
  std::string interface_version;  ///< what Health reports: 0.1.5, or what the operator set
  std::string gateway_version;    ///< ours
  DriverInfo driver;
};
/// Health, GetGatewayInfo, GetCurrentUser.
void add_info_handlers(Router& router, GatewayInfo info);

/// IssueSandboxToken, RefreshSandboxToken. `tokens` may be null: no signing key.
void add_token_handlers(Router& router, const TokenAuthority* tokens, SandboxIdentities* sandboxes);

struct ProviderHandlerOptions {
  storage::Store* store = nullptr;
  const providers::CredentialStore* credentials = nullptr;
  /// Names of the sandboxes of a workspace that have a provider attached, read in the deletion's transaction; empty function: none can be.
  std::function<absl::StatusOr<std::vector<std::string>>(storage::Transaction&, const std::string& workspace, const std::string& provider)>
      attached_to;
  /// After each committed change.
  std::function<void(const std::string& workspace, const std::string& provider)> changed;
};
/// CreateProvider, GetProvider, ListProviders, DeleteProvider, GetProviderProfile, ListProviderProfiles.
void add_provider_handlers(Router& router, ProviderHandlerOptions options);

struct CredentialHandlerOptions {
  storage::Store* store = nullptr;
  const providers::CredentialStore* credentials = nullptr;
};
/// GetProviderCredentials, for operators.
void add_credential_handlers(Router& router, CredentialHandlerOptions options);

/// The environment of a sandbox as GetSandboxProviderEnvironment sends it; epoch and policy hash are the caller's to add.
openshell::v1::GetSandboxProviderEnvironmentResponse to_wire(const providers::Environment& environment);

}  // namespace openshell::api
