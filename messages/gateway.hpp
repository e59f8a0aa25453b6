// The map of the gateway: every actor of the process and every message it takes.
// One alias an actor, one comment a handler: who sends it, what it changes, what comes back.
//
//   GatewayRoot ── SandboxIndex ── SandboxEntity (one per sandbox, the only writer of its records)
//              ├── ComputeReconciler ── one short-lived worker per driver call
//              ├── SessionRegistry      supervisors' sessions, and the nudge
//              ├── RelayRegistry        relays that wait for their supervisor; their bytes never come near an actor
//              ├── SandboxBus           logs, platform events and status changes for those who watch
//              └── GlobalConfiguration  settings and policy that hold for every sandbox
//
// The store has threads of its own; what it answers comes back to the actor that asked as a `Resume`.
// Requests of the public interface travel as they came (`Ask`) and are answered as they leave (`Reply`): the handlers in api/sandboxes/ add
// nothing.
#pragma once

#include <absl/status/statusor.h>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "messages/introspection.hpp"
#include "messages/values.hpp"

namespace openshell::v1 {
class ApproveAllDraftChunksRequest;
class ApproveAllDraftChunksResponse;
class ApproveDraftChunkRequest;
class ApproveDraftChunkResponse;
class AttachSandboxProviderRequest;
class AttachSandboxProviderResponse;
class ClearDraftChunksRequest;
class ClearDraftChunksResponse;
class CreateSandboxRequest;
class DeleteSandboxRequest;
class DeleteSandboxResponse;
class DetachSandboxProviderRequest;
class DetachSandboxProviderResponse;
class EditDraftChunkRequest;
class EditDraftChunkResponse;
class FinalizeMainProcessExitRequest;
class FinalizeMainProcessExitResponse;
class GatewayMessage;
class GetDraftHistoryRequest;
class GetDraftHistoryResponse;
class GetDraftPolicyRequest;
class GetDraftPolicyResponse;
class GetSandboxLogsRequest;
class GetSandboxLogsResponse;
class GetSandboxPolicyStatusRequest;
class GetSandboxPolicyStatusResponse;
class GetSandboxProviderEnvironmentRequest;
class GetSandboxProviderEnvironmentResponse;
class GetSandboxProviderStatusRequest;
class GetSandboxProviderStatusResponse;
class ListSandboxesRequest;
class ListSandboxesResponse;
class ListSandboxPoliciesRequest;
class ListSandboxPoliciesResponse;
class PlatformEvent;
class PushSandboxLogsRequest;
class ProviderMutationReceipt;
class RejectDraftChunkRequest;
class RejectDraftChunkResponse;
class ReportEndpointStatusRequest;
class ReportEndpointStatusResponse;
class ReportMainProcessExitRequest;
class ReportMainProcessExitResponse;
class ReportPolicyStatusRequest;
class ReportPolicyStatusResponse;
class ReportProviderReadinessRequest;
class ReportProviderReadinessResponse;
class ReportSandboxConfigurationRequest;
class ReportSandboxConfigurationResponse;
class Sandbox;
class SandboxResponse;
class StartSandboxRequest;
class StopSandboxRequest;
class SubmitPolicyAnalysisRequest;
class SubmitPolicyAnalysisResponse;
class UndoDraftChunkRequest;
class UndoDraftChunkResponse;
class UpdateConfigRequest;
class UpdateConfigResponse;
class WatchSandboxRequest;
}  // namespace openshell::v1
namespace openshell::sandbox::v1 {
class GetGatewayConfigRequest;
class GetGatewayConfigResponse;
class GetSandboxConfigRequest;
class GetSandboxConfigResponse;
}  // namespace openshell::sandbox::v1
namespace openshell::internal::records::v1 {
class SandboxRecord;
class SettingsRecord;
}  // namespace openshell::internal::records::v1

namespace openshell::gateway {

namespace records = openshell::internal::records::v1;

class ComputeCall;       // actors/gateway/compute.hpp: one call of the driver
struct ComputeAnswer;    // what it answered
struct StoredSandboxes;  // actors/gateway/records.hpp: everything that is stored about sandboxes
class RelayEnd;          // actors/gateway/relay_pipe.hpp: one side of a relay, for a reactor
class SupervisorLink;    // actors/gateway/supervisor_link.hpp: the way to one connected supervisor
class WatchSink;         // actors/gateway/watch_sink.hpp: the way to one watching client

/// Who asks, as the authentication saw it. Authorization is done before a message is made; actors use it for what depends on the caller.
struct Caller {
  enum class Kind : std::uint8_t { user, supervisor };
  Kind kind = Kind::user;
  std::string subject;
  std::string sandbox_id;       ///< of a supervisor: its own
  bool platform_admin = false;  ///< of a user
};

/// A request of the public interface, unchanged.
template <class Request>
struct Ask {
  std::shared_ptr<const Request> request;
  Caller caller;
};

/// The answer, or why there is none. Errors carry their structured details as payloads of the status.
template <class T>
struct Reply {
  absl::StatusOr<std::shared_ptr<const T>> value = absl::UnknownError("no answer");
};

/// Like `Reply`, for things that are handed over rather than looked at.
template <class T>
struct Handed {
  absl::StatusOr<std::shared_ptr<T>> value = absl::UnknownError("no answer");
};

/// The answer to a command that has no result.
struct Outcome {
  absl::Status status;
};

/// The rest of something that an actor handed to a thread outside (store, driver); run by that actor only.
struct Resume {
  std::function<void()> run;
};

/// What a supervisor may repeat of a token rotation; see the record.
struct TokenRotation {
  std::string expected_token_id, new_token_id, previous_token_id, request_hash, rotation_id;
  std::int64_t issued_at = 0, replay_until = 0;  ///< Unix seconds
};

/// An attached provider was updated; the receipt of what that means for the sandbox is asked for.
struct ProviderUpdated {
  std::string provider, mutation_id;
};

/// What the driver says about one sandbox, in the driver's words.
struct ComputeCondition {
  std::string type, status, reason, message, transition_time;  ///< `transition_time` RFC 3339 or empty
};
struct ComputeObservation {
  std::string sandbox_id;
  std::string generation;   ///< of what is described; an observation of another generation than the record's is stale. Empty: unknown.
  bool gone = false;        ///< the driver has nothing under that id (any more)
  bool has_status = false;  ///< false: it exists and nothing is known of it
  bool deleting = false;
  std::string instance_id, agent_fd, sandbox_fd;
  std::vector<ComputeCondition> conditions;
};

/// The current session of a sandbox, as its entity needs it.
struct SessionInfo {
  std::string session_id, instance_id, host_key_fingerprint;
  bool provider_readiness = false;
};

/// The answer of a supervisor to a nudge.
struct NudgeAnswer {
  std::string sandbox_id, session_id, update_id;
  bool unsupported = false;
};

/// A relay that somebody wants to `target`; `service_id` empty or one of ours (`openshell.exec/1`).
struct RelayRequest {
  std::string sandbox_id, service_id;
  std::string tcp_host;  ///< empty: target ssh
  std::uint32_t tcp_port = 0;
};
struct RelayClaim {
  std::string channel_id;
  Caller caller;
};
struct RelayFailure {
  std::string channel_id, sandbox_id, session_id, reason;
  bool refused = false;  ///< RelayOpenResult{success=false}; else RelayClose
};

/// Settings and policy of the whole gateway, immutable.
struct GlobalView {
  std::shared_ptr<const records::SettingsRecord> settings;
  std::uint32_t policy_version = 0;  ///< newest global revision, 0 without a global policy
};

using add_atom = caf::atom_constant<caf::atom("add")>;
using changed_atom = caf::atom_constant<caf::atom("changed")>;
using create_atom = caf::atom_constant<caf::atom("create")>;
using drop_atom = caf::atom_constant<caf::atom("drop")>;
using ended_atom = caf::atom_constant<caf::atom("ended")>;
using find_atom = caf::atom_constant<caf::atom("find")>;
using get_atom = caf::atom_constant<caf::atom("get")>;
using heard_atom = caf::atom_constant<caf::atom("heard")>;
using load_atom = caf::atom_constant<caf::atom("load")>;
using open_atom = caf::atom_constant<caf::atom("open")>;
using recover_atom = caf::atom_constant<caf::atom("recover")>;
using sweep_atom = caf::atom_constant<caf::atom("sweep")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;
using usable_atom = caf::atom_constant<caf::atom("usable")>;

/// One per sandbox, child of SandboxIndex, and the only writer of its records. It handles one change at a time: a change is written before
/// it shows, is answered or causes anything; what arrives meanwhile waits in order. Stopping, starting and deleting hold the same gate
/// until the driver answered. Restart: from the store.
using SandboxEntity = Introspectable::extend<
    // From SandboxIndex, once for a new sandbox. Stored first, then given to the driver; on error nothing is left and the entity ends.
    caf::replies_to<create_atom>::with<Reply<openshell::v1::SandboxResponse>>,
    // From SandboxIndex after a start of the gateway. Finishes a transition that was cut off, or puts the sandbox back.
    caf::reacts_to<recover_atom>,
    // From handlers. The sandbox as it is stored.
    caf::replies_to<get_atom>::with<Reply<openshell::v1::Sandbox>>,
    // From handlers of exec and forwarding. OK when a process may be started in it now.
    caf::replies_to<usable_atom>::with<Outcome>,
    // From users: lifecycle.
    caf::replies_to<Ask<openshell::v1::StopSandboxRequest>>::with<Reply<openshell::v1::SandboxResponse>>,
    caf::replies_to<Ask<openshell::v1::StartSandboxRequest>>::with<Reply<openshell::v1::SandboxResponse>>,
    caf::replies_to<Ask<openshell::v1::DeleteSandboxRequest>>::with<Reply<openshell::v1::DeleteSandboxResponse>>,
    // From users, and from its supervisor for the sync of an enriched policy. A new revision, a setting, or nothing where nothing changes.
    caf::replies_to<Ask<openshell::v1::UpdateConfigRequest>>::with<Reply<openshell::v1::UpdateConfigResponse>>,
    // From its supervisor and from users. The effective configuration, from memory.
    caf::replies_to<Ask<openshell::sandbox::v1::GetSandboxConfigRequest>>::with<Reply<openshell::sandbox::v1::GetSandboxConfigResponse>>,
    caf::replies_to<Ask<openshell::v1::ListSandboxPoliciesRequest>>::with<Reply<openshell::v1::ListSandboxPoliciesResponse>>,
    caf::replies_to<Ask<openshell::v1::GetSandboxPolicyStatusRequest>>::with<Reply<openshell::v1::GetSandboxPolicyStatusResponse>>,
    // From its supervisor: what became of a revision, of the configuration, of providers, of endpoints, of the main process. Repeats change
    // nothing.
    caf::replies_to<Ask<openshell::v1::ReportPolicyStatusRequest>>::with<Reply<openshell::v1::ReportPolicyStatusResponse>>,
    caf::replies_to<Ask<openshell::v1::ReportSandboxConfigurationRequest>>::with<Reply<openshell::v1::ReportSandboxConfigurationResponse>>,
    caf::replies_to<Ask<openshell::v1::ReportProviderReadinessRequest>>::with<Reply<openshell::v1::ReportProviderReadinessResponse>>,
    caf::replies_to<Ask<openshell::v1::ReportEndpointStatusRequest>>::with<Reply<openshell::v1::ReportEndpointStatusResponse>>,
    caf::replies_to<Ask<openshell::v1::ReportMainProcessExitRequest>>::with<Reply<openshell::v1::ReportMainProcessExitResponse>>,
    caf::replies_to<Ask<openshell::v1::FinalizeMainProcessExitRequest>>::with<Reply<openshell::v1::FinalizeMainProcessExitResponse>>,
    // From its supervisor. Values and bindings of the attached providers, and the revision they are of.
    caf::replies_to<Ask<openshell::v1::GetSandboxProviderEnvironmentRequest>>::with<
        Reply<openshell::v1::GetSandboxProviderEnvironmentResponse>>,
    // From users: attachment of providers and what came of it.
    caf::replies_to<Ask<openshell::v1::AttachSandboxProviderRequest>>::with<Reply<openshell::v1::AttachSandboxProviderResponse>>,
    caf::replies_to<Ask<openshell::v1::DetachSandboxProviderRequest>>::with<Reply<openshell::v1::DetachSandboxProviderResponse>>,
    caf::replies_to<Ask<openshell::v1::GetSandboxProviderStatusRequest>>::with<Reply<openshell::v1::GetSandboxProviderStatusResponse>>,
    // From UpdateProvider, for each sandbox that has the provider. Its receipt, stored; NOT_FOUND where it was detached meanwhile.
    caf::replies_to<ProviderUpdated>::with<Reply<openshell::v1::ProviderMutationReceipt>>,
    // From its supervisor. Proposals are stored and wait for a person.
    caf::replies_to<Ask<openshell::v1::SubmitPolicyAnalysisRequest>>::with<Reply<openshell::v1::SubmitPolicyAnalysisResponse>>,
    // From users, reading also from its supervisor. The proposals, newest first, and what was decided about them.
    caf::replies_to<Ask<openshell::v1::GetDraftPolicyRequest>>::with<Reply<openshell::v1::GetDraftPolicyResponse>>,
    caf::replies_to<Ask<openshell::v1::GetDraftHistoryRequest>>::with<Reply<openshell::v1::GetDraftHistoryResponse>>,
    // From users: decisions. Approval, and the end of one, are a new policy revision in the same commit.
    caf::replies_to<Ask<openshell::v1::ApproveDraftChunkRequest>>::with<Reply<openshell::v1::ApproveDraftChunkResponse>>,
    caf::replies_to<Ask<openshell::v1::ApproveAllDraftChunksRequest>>::with<Reply<openshell::v1::ApproveAllDraftChunksResponse>>,
    caf::replies_to<Ask<openshell::v1::RejectDraftChunkRequest>>::with<Reply<openshell::v1::RejectDraftChunkResponse>>,
    caf::replies_to<Ask<openshell::v1::EditDraftChunkRequest>>::with<Reply<openshell::v1::EditDraftChunkResponse>>,
    caf::replies_to<Ask<openshell::v1::UndoDraftChunkRequest>>::with<Reply<openshell::v1::UndoDraftChunkResponse>>,
    caf::replies_to<Ask<openshell::v1::ClearDraftChunksRequest>>::with<Reply<openshell::v1::ClearDraftChunksResponse>>,
    // From ComputeReconciler. Applied by the rules of the state machine; stale and foreign ones change nothing.
    caf::reacts_to<ComputeObservation>,
    // From SessionRegistry. The session that is current now.
    caf::reacts_to<add_atom, SessionInfo>,
    // From SessionRegistry, only for the session that was current. The second text is why.
    caf::reacts_to<ended_atom, std::string, std::string>,
    // From SandboxIndex when global configuration changed, or a provider of the workspace (its name; empty: any).
    caf::reacts_to<changed_atom, GlobalView>, caf::reacts_to<changed_atom, std::string>,
    // From itself. Looks whether a deadline, a restart or a recovery is due.
    caf::reacts_to<tick_atom>,
    // From RefreshSandboxToken. One durable compare-and-swap of the id of the valid token.
    caf::replies_to<TokenRotation>::with<Outcome>,
    // From the store and the driver: the rest of what this actor started.
    caf::reacts_to<Resume>>;

/// Where a sandbox is found.
struct SandboxHandle {
  std::string sandbox_id, workspace, name;
  SandboxEntity entity;
};

/// A supervisor that said hello. [gateway session rules]
struct SessionOffer {
  std::string sandbox_id, instance_id, host_key_fingerprint;
  std::uint64_t connection_epoch = 0;
  bool provider_readiness = false;
  bool config_push = false;
  std::shared_ptr<SupervisorLink> link;
  SandboxEntity entity;  ///< hears of the session
};
struct SessionGrant {
  std::string session_id;
};

/// Names to entities. Child of the root, parent of the entities. It holds the last stored form of each sandbox, so that lists ask nobody.
/// Restart: the root gives it all records of the store again, and entities are made anew.
using SandboxIndex = Introspectable::extend<
    // From the root, at start: one entity per record, then each recovers.
    caf::replies_to<load_atom, std::shared_ptr<const StoredSandboxes>>::with<Outcome>,
    // From users. Checked, named, reserved, then the entity's answer.
    caf::replies_to<Ask<openshell::v1::CreateSandboxRequest>>::with<Reply<openshell::v1::SandboxResponse>>,
    // From handlers. By workspace and name: NOT_FOUND `sandbox not found`.
    caf::replies_to<find_atom, std::string, std::string>::with<Handed<SandboxHandle>>,
    // From handlers of supervisors' calls. By id.
    caf::replies_to<find_atom, std::string>::with<Handed<SandboxHandle>>,
    // From users. One page; the second text is the workspace, empty for all.
    caf::replies_to<Ask<openshell::v1::ListSandboxesRequest>, std::string>::with<Reply<openshell::v1::ListSandboxesResponse>>,
    // From an entity: what it stored, or that it is gone. Watchers hear of it through SandboxBus.
    caf::reacts_to<changed_atom, std::string, std::shared_ptr<const openshell::v1::Sandbox>>, caf::reacts_to<drop_atom, std::string>,
    // From GlobalConfiguration: passed on to every entity.
    caf::reacts_to<changed_atom, GlobalView>,
    // From whoever wrote a provider or a profile (workspace, name; empty: any): passed on to the entities of the workspace.
    caf::reacts_to<changed_atom, std::string, std::string>,
    // From ComputeReconciler: passed on to the entity; an unknown sandbox is ignored, the store is authoritative.
    caf::reacts_to<ComputeObservation>,
    // From ComputeReconciler, for its sweep: the ids that have an entity, and since when (ms since the epoch).
    caf::replies_to<list_atom>::with<std::map<std::string, std::int64_t>>,
    // From the store: the rest of what this actor started.
    caf::reacts_to<Resume>>;

/// Talks to the compute driver: calls on workers, its watch stream, a sweep every 60 s. Decides nothing about a sandbox.
/// Restart: watches anew; the first snapshot tells everything again.
using ComputeReconciler = Introspectable::extend<
    // From entities. One driver call on a worker of its own, at most 16 at once; answered when the driver did.
    caf::replies_to<std::shared_ptr<const ComputeCall>>::with<Reply<ComputeAnswer>>,
    // From the driver's watch. In its order.
    caf::reacts_to<ComputeObservation>,
    // From the root, once: who hears of observations. The watch opens then.
    caf::reacts_to<add_atom, SandboxIndex>,
    // From the driver's watch: the stream ended (why); reopened after 2 s.
    caf::reacts_to<ended_atom, std::string>,
    // From itself, every 60 s. Lists the driver and tells entities what it has and what it has not.
    caf::reacts_to<sweep_atom>,
    // From its workers: the rest of what this actor started.
    caf::reacts_to<Resume>>;

/// Sessions of supervisors on this node. Child of the root.
/// Restart: supervisors connect again; no session survives it.
using SessionRegistry = Introspectable::extend<
    // From ConnectSupervisor. The session is current when this answers; an older one is closed. Refused: an older epoch of the instance.
    caf::replies_to<add_atom, SessionOffer>::with<Reply<SessionGrant>>,
    // From ConnectSupervisor: a message came on that session (sandbox, session).
    caf::reacts_to<heard_atom, std::string, std::string>,
    // From ConnectSupervisor: its stream ended (sandbox, session, why).
    caf::reacts_to<ended_atom, std::string, std::string, std::string>,
    // From ConnectSupervisor: the poll that a nudge caused was handled.
    caf::reacts_to<NudgeAnswer>,
    // From entities, after a commit that the configuration of this sandbox depends on. Coalesced, one outstanding.
    caf::reacts_to<changed_atom, std::string>,
    // From RelayRegistry. Sends to the sandbox's supervisor, waiting up to 15 s for a session; answers the session it went to.
    caf::replies_to<open_atom, std::string, std::shared_ptr<const openshell::v1::GatewayMessage>>::with<Reply<SessionGrant>>,
    // From entities that stop or delete: closes the session (sandbox, why).
    caf::reacts_to<drop_atom, std::string, std::string>,
    // From itself, once a second. Heartbeats, silence, nudges without answer, waiters.
    caf::reacts_to<tick_atom>>;

/// Relays between their request and their supervisor's claim. Child of the root.
/// Restart: waiting requests fail, established relays do not notice.
using RelayRegistry = Introspectable::extend<
    // From exec and forwarding. The requester's side once the supervisor claimed it, within 10 s.
    caf::replies_to<open_atom, RelayRequest>::with<Handed<RelayEnd>>,
    // From RelayStream. The supervisor's side, once; NOT_FOUND, or PERMISSION_DENIED for a foreign channel, which stays usable.
    caf::replies_to<RelayClaim>::with<Handed<RelayEnd>>,
    // From ConnectSupervisor. A refusal or an abort, honoured for that sandbox and session only.
    caf::reacts_to<RelayFailure>,
    // From itself, once a second: what nobody claimed.
    caf::reacts_to<tick_atom>>;

/// Log lines, platform events and status changes per sandbox, in memory, one cursor sequence a sandbox. Child of the root.
/// Restart: empty, with a new epoch of cursors.
using SandboxBus = Introspectable::extend<
    // From PushSandboxLogs. At most 100 lines of a batch are taken.
    caf::reacts_to<Ask<openshell::v1::PushSandboxLogsRequest>>,
    // From the gateway's own log (sandbox, level, text).
    caf::reacts_to<add_atom, std::string, std::string, std::string>,
    // From users: filtered first, then the newest (sandbox id).
    caf::replies_to<Ask<openshell::v1::GetSandboxLogsRequest>, std::string>::with<Reply<openshell::v1::GetSandboxLogsResponse>>,
    // From WatchSandbox: replay by the request's rules, then live until the sink closes (sandbox id).
    caf::replies_to<Ask<openshell::v1::WatchSandboxRequest>, std::string, std::shared_ptr<WatchSink>>::with<Outcome>,
    // From SandboxIndex: the new stored form; nobody else's status reaches watchers.
    caf::reacts_to<changed_atom, std::string, std::shared_ptr<const openshell::v1::Sandbox>>,
    // From ComputeReconciler: an event of the platform.
    caf::reacts_to<add_atom, std::string, std::shared_ptr<const openshell::v1::PlatformEvent>>,
    // From SandboxIndex: the sandbox is gone; its watchers' streams end.
    caf::reacts_to<drop_atom, std::string>>;

/// Settings and policy that hold for every sandbox. Child of the root, only writer of the global rows.
/// Restart: from the store.
using GlobalConfiguration = Introspectable::extend<
    // From users, `global` set.
    caf::replies_to<Ask<openshell::v1::UpdateConfigRequest>>::with<Reply<openshell::v1::UpdateConfigResponse>>,
    caf::replies_to<Ask<openshell::sandbox::v1::GetGatewayConfigRequest>>::with<Reply<openshell::sandbox::v1::GetGatewayConfigResponse>>,
    caf::replies_to<Ask<openshell::v1::ListSandboxPoliciesRequest>>::with<Reply<openshell::v1::ListSandboxPoliciesResponse>>,
    caf::replies_to<Ask<openshell::v1::GetSandboxPolicyStatusRequest>>::with<Reply<openshell::v1::GetSandboxPolicyStatusResponse>>,
    // From the root, at start: reads its rows; answers what holds now.
    caf::replies_to<load_atom>::with<Reply<GlobalView>>,
    // From the store, what this actor started.
    caf::reacts_to<Resume>>;

}  // namespace openshell::gateway

// Local messages only: none of these ever crosses a node.
namespace caf {
template <class R>
struct allowed_unsafe_message_type<openshell::gateway::Ask<R>> : std::true_type {};
template <class T>
struct allowed_unsafe_message_type<openshell::gateway::Reply<T>> : std::true_type {};
template <class T>
struct allowed_unsafe_message_type<openshell::gateway::Handed<T>> : std::true_type {};
template <class T>
struct allowed_unsafe_message_type<std::shared_ptr<T>> : std::true_type {};
}  // namespace caf
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::Outcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::Resume)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::TokenRotation)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::ProviderUpdated)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::ComputeObservation)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::SessionOffer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::SessionInfo)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::NudgeAnswer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::RelayRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::RelayClaim)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::RelayFailure)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::gateway::GlobalView)
