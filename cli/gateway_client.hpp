// The command line's connection to one gateway. Blocking: a command does one thing after the other.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/registration.hpp"
#include "cli/window_size.hpp"
#include "messages/secret.hpp"

// Every unary call that a command makes: (function, RPC, request, response).
#define OPENSHELL_CLI_CALLS(X)                                                                                        \
  X(health, Health, HealthRequest, HealthResponse)                                                                    \
  X(get_gateway_info, GetGatewayInfo, GetGatewayInfoRequest, GetGatewayInfoResponse)                                  \
  X(get_current_user, GetCurrentUser, GetCurrentUserRequest, GetCurrentUserResponse)                                  \
  X(create_sandbox, CreateSandbox, CreateSandboxRequest, SandboxResponse)                                             \
  X(get_sandbox, GetSandbox, GetSandboxRequest, SandboxResponse)                                                      \
  X(list_sandboxes, ListSandboxes, ListSandboxesRequest, ListSandboxesResponse)                                       \
  X(delete_sandbox, DeleteSandbox, DeleteSandboxRequest, DeleteSandboxResponse)                                       \
  X(stop_sandbox, StopSandbox, StopSandboxRequest, SandboxResponse)                                                   \
  X(start_sandbox, StartSandbox, StartSandboxRequest, SandboxResponse)                                                \
  X(create_template, CreateSandboxTemplate, CreateSandboxTemplateRequest, SandboxTemplateResponse)                    \
  X(get_template, GetSandboxTemplate, GetSandboxTemplateRequest, SandboxTemplateResponse)                             \
  X(list_templates, ListSandboxTemplates, ListSandboxTemplatesRequest, ListSandboxTemplatesResponse)                  \
  X(delete_template, DeleteSandboxTemplate, DeleteSandboxTemplateRequest, DeleteSandboxTemplateResponse)              \
  X(attach_provider, AttachSandboxProvider, AttachSandboxProviderRequest, AttachSandboxProviderResponse)              \
  X(detach_provider, DetachSandboxProvider, DetachSandboxProviderRequest, DetachSandboxProviderResponse)              \
  X(list_sandbox_providers, ListSandboxProviders, ListSandboxProvidersRequest, ListSandboxProvidersResponse)          \
  X(create_provider, CreateProvider, CreateProviderRequest, ProviderResponse)                                         \
  X(get_provider, GetProvider, GetProviderRequest, ProviderResponse)                                                  \
  X(list_providers, ListProviders, ListProvidersRequest, ListProvidersResponse)                                       \
  X(delete_provider, DeleteProvider, DeleteProviderRequest, DeleteProviderResponse)                                   \
  X(get_provider_profile, GetProviderProfile, GetProviderProfileRequest, ProviderProfileResponse)                     \
  X(create_workspace, CreateWorkspace, CreateWorkspaceRequest, CreateWorkspaceResponse)                               \
  X(get_workspace, GetWorkspace, GetWorkspaceRequest, GetWorkspaceResponse)                                           \
  X(list_workspaces, ListWorkspaces, ListWorkspacesRequest, ListWorkspacesResponse)                                   \
  X(delete_workspace, DeleteWorkspace, DeleteWorkspaceRequest, DeleteWorkspaceResponse)                               \
  X(add_workspace_member, AddWorkspaceMember, AddWorkspaceMemberRequest, AddWorkspaceMemberResponse)                  \
  X(remove_workspace_member, RemoveWorkspaceMember, RemoveWorkspaceMemberRequest, RemoveWorkspaceMemberResponse)      \
  X(list_workspace_members, ListWorkspaceMembers, ListWorkspaceMembersRequest, ListWorkspaceMembersResponse)          \
  X(update_provider, UpdateProvider, UpdateProviderRequest, ProviderResponse)                                         \
  X(list_provider_profiles, ListProviderProfiles, ListProviderProfilesRequest, ListProviderProfilesResponse)          \
  X(import_provider_profiles, ImportProviderProfiles, ImportProviderProfilesRequest, ImportProviderProfilesResponse)  \
  X(update_provider_profiles, UpdateProviderProfiles, UpdateProviderProfilesRequest, UpdateProviderProfilesResponse)  \
  X(lint_provider_profiles, LintProviderProfiles, LintProviderProfilesRequest, LintProviderProfilesResponse)          \
  X(delete_provider_profile, DeleteProviderProfile, DeleteProviderProfileRequest, DeleteProviderProfileResponse)      \
  X(get_provider_status, GetSandboxProviderStatus, GetSandboxProviderStatusRequest, GetSandboxProviderStatusResponse) \
  X(expose_service, ExposeService, ExposeServiceRequest, ServiceEndpointResponse)                                     \
  X(get_service, GetService, GetServiceRequest, ServiceEndpointResponse)                                              \
  X(list_services, ListServices, ListServicesRequest, ListServicesResponse)                                           \
  X(delete_service, DeleteService, DeleteServiceRequest, DeleteServiceResponse)                                       \
  X(update_config, UpdateConfig, UpdateConfigRequest, UpdateConfigResponse)                                           \
  X(get_policy_status, GetSandboxPolicyStatus, GetSandboxPolicyStatusRequest, GetSandboxPolicyStatusResponse)         \
  X(list_policies, ListSandboxPolicies, ListSandboxPoliciesRequest, ListSandboxPoliciesResponse)                      \
  X(get_draft_policy, GetDraftPolicy, GetDraftPolicyRequest, GetDraftPolicyResponse)                                  \
  X(get_draft_history, GetDraftHistory, GetDraftHistoryRequest, GetDraftHistoryResponse)                              \
  X(approve_draft_chunk, ApproveDraftChunk, ApproveDraftChunkRequest, ApproveDraftChunkResponse)                      \
  X(approve_all_draft_chunks, ApproveAllDraftChunks, ApproveAllDraftChunksRequest, ApproveAllDraftChunksResponse)     \
  X(reject_draft_chunk, RejectDraftChunk, RejectDraftChunkRequest, RejectDraftChunkResponse)                          \
  X(undo_draft_chunk, UndoDraftChunk, UndoDraftChunkRequest, UndoDraftChunkResponse)                                  \
  X(clear_draft_chunks, ClearDraftChunks, ClearDraftChunksRequest, ClearDraftChunksResponse)                          \
  X(get_logs, GetSandboxLogs, GetSandboxLogsRequest, GetSandboxLogsResponse)                                          \
  X(create_ssh_session, CreateSshSession, CreateSshSessionRequest, CreateSshSessionResponse)                          \
  X(revoke_ssh_session, RevokeSshSession, RevokeSshSessionRequest, RevokeSshSessionResponse)

namespace openshell::v1 {
#define X(function, rpc, request, response) \
  class request;                            \
  class response;
OPENSHELL_CLI_CALLS(X)
#undef X
class ExecSandboxRequest;
class ExecSandboxInput;
class ExecSandboxEvent;
class WatchSandboxRequest;
class SandboxStreamEvent;
class TcpForwardInit;
}  // namespace openshell::v1
namespace openshell::sandbox::v1 {
class GetSandboxConfigRequest;
class GetSandboxConfigResponse;
class GetGatewayConfigRequest;
class GetGatewayConfigResponse;
}  // namespace openshell::sandbox::v1

namespace openshell::cli {

class ByteForward;  // cli/ssh/byte_forward.hpp

/// How to reach a gateway: where, and as whom.
struct Target {
  std::string name;  ///< decides where the certificates are looked up
  std::string endpoint;
  bool insecure = false;               ///< no verification of the server, no client certificate
  std::optional<ClientBundle> bundle;  ///< client certificate and CA for https
  std::string auth_mode;               ///< of the registration; `oidc`: the bundle may be the CA alone, or absent
  Secret bearer;                       ///< sent with every call; empty: none
};

/// What a command prints of an error: the sentence alone, or for an answer of the gateway `status: NotFound, message: "..."` and one line
/// for each detail (field violations, when to try again).
std::string describe(const absl::Status& status);

/// Calls fail with the gateway's code and its own message; `describe` tells the two apart from errors of the client.
class GatewayClient {
 public:
  /// Does not wait for the connection; the first call does, 10 s at most.
  static absl::StatusOr<GatewayClient> open(const Target& target);
  GatewayClient(GatewayClient&&) noexcept;
  ~GatewayClient();

#define X(function, rpc, request, response) absl::StatusOr<v1::response> function(const v1::request& message);
  OPENSHELL_CLI_CALLS(X)
#undef X
  absl::StatusOr<sandbox::v1::GetSandboxConfigResponse> get_sandbox_config(const sandbox::v1::GetSandboxConfigRequest& message);
  absl::StatusOr<sandbox::v1::GetGatewayConfigResponse> get_gateway_config(const sandbox::v1::GetGatewayConfigRequest& message);

  /// Hands every event to `take` until the stream ends, `take` answers false (then OK), or it is `until` (then DEADLINE_EXCEEDED).
  using TakeEvent = std::function<bool(const v1::SandboxStreamEvent&)>;
  absl::Status watch(const v1::WatchSandboxRequest& message, const TakeEvent& take,
                     std::optional<std::chrono::system_clock::time_point> until = std::nullopt);

  using TakeOutput = std::function<void(const v1::ExecSandboxEvent&)>;
  /// One request, all input in it.
  absl::Status exec(const v1::ExecSandboxRequest& message, const TakeOutput& take);
  struct ExecInput {
    std::string bytes;                  ///< for stdin, or
    std::optional<WindowSize> resized;  ///< what the caller's terminal became
  };
  /// Streams input: `next` blocks for the next message and answers nothing at its end; it runs on a thread of its own and is abandoned when
  /// the call ends first. An error of `next` aborts the call.
  using NextInput = std::function<absl::StatusOr<std::optional<ExecInput>>()>;
  absl::Status exec_interactive(const v1::ExecSandboxRequest& start, const NextInput& next, const TakeOutput& take);

  /// ForwardTcp; its first frame is sent, and the call keeps the connection.
  std::shared_ptr<ByteForward> open_forward(const v1::TcpForwardInit& init);

 private:
  struct Connection;
  explicit GatewayClient(std::shared_ptr<Connection> connection);
  std::shared_ptr<Connection> connection_;
};

}  // namespace openshell::cli
