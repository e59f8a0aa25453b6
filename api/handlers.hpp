// The handlers that need no sandbox: who and what the gateway is, launch tokens, providers. Each function adds its methods to the router.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/sandbox_identities.hpp"
#include "api/service.hpp"
#include "api/service_endpoint.hpp"
#include "api/tokens.hpp"
#include "providers/credential_store.hpp"
#include "storage/store.hpp"

namespace openshell::providers {
struct Profile;
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

/// CreateWorkspace, GetWorkspace, ListWorkspaces, DeleteWorkspace. `store` outlives the router, as in all that follow.
void add_workspace_handlers(Router& router, storage::Store* store);
/// AddWorkspaceMember, RemoveWorkspaceMember, ListWorkspaceMembers.
void add_member_handlers(Router& router, storage::Store* store);

struct ProviderHandlerOptions {
  storage::Store* store = nullptr;
  const providers::CredentialStore* credentials = nullptr;
  /// Names of the sandboxes of a workspace that have a provider attached, read in the deletion's transaction; empty function: none can be.
  std::function<absl::StatusOr<std::vector<std::string>>(storage::Transaction&, const std::string& workspace, const std::string& provider)>
      attached_to;
  /// FAILED_PRECONDITION `sandbox 'S': ...` where one of these sandboxes would get an environment key from two providers; in the
  /// transaction.
  std::function<absl::Status(storage::Transaction&, const std::string& workspace, const std::vector<std::string>& sandboxes)>
      check_attached;
  /// What sandboxes that use the profile's entry would make of `candidate` in its place: field and message of each fault. In the
  /// transaction.
  using Faults = std::vector<std::pair<std::string, std::string>>;
  std::function<absl::StatusOr<Faults>(storage::Transaction&, const providers::Profile& candidate, const std::string& operation)>
      profile_impact;
  /// After each committed change; an empty name: any provider of the workspace, an empty workspace: of all.
  std::function<void(const std::string& workspace, const std::string& provider)> changed;
  /// Writes a receipt of an update for each sandbox (by name) and gives them to `then`; a sandbox that is gone meanwhile has none.
  std::function<void(const std::string& workspace, const std::vector<std::string>& sandboxes, const std::string& provider,
                     const std::string& mutation_id, std::function<void(std::vector<openshell::v1::ProviderMutationReceipt>)> then)>
      receipts;
};
/// CreateProvider, GetProvider, ListProviders, UpdateProvider, DeleteProvider, and the calls on profiles.
void add_provider_handlers(Router& router, ProviderHandlerOptions options);
/// The six calls on provider profiles; part of add_provider_handlers().
void add_profile_handlers(Router& router, const ProviderHandlerOptions& options);
/// UpdateProvider; part of add_provider_handlers().
void update_provider(const ProviderHandlerOptions& options, const Context& ctx, openshell::v1::UpdateProviderRequest request,
                     const Reply<openshell::v1::ProviderResponse>& reply);

struct CredentialHandlerOptions {
  storage::Store* store = nullptr;
  const providers::CredentialStore* credentials = nullptr;
};
/// GetProviderCredentials, for operators.
void add_credential_handlers(Router& router, CredentialHandlerOptions options);

struct ServiceHandlerOptions {
  storage::Store* store = nullptr;
  std::function<ServiceAddress()> address;  ///< asked at each answer: the port is known once the gateway listens
};
/// ExposeService, GetService, ListServices, DeleteService.
void add_service_handlers(Router& router, ServiceHandlerOptions options);

}  // namespace openshell::api
