// The actor of one sandbox. Decisions are in lifecycle.hpp, admission.hpp, policy_history.hpp, settings.hpp, update_config.hpp,
// provider_evidence.hpp; here they are ordered: one change at a time, written before it shows.
#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/compute.hpp"
#include "actors/gateway/endpoint_statuses.hpp"
#include "actors/gateway/gate.hpp"
#include "actors/gateway/identity_table.hpp"
#include "actors/gateway/policy_history.hpp"
#include "actors/gateway/provider_evidence.hpp"
#include "actors/gateway/records.hpp"
#include "actors/introspection/reporter.hpp"
#include "messages/gateway.hpp"
#include "providers/environment.hpp"
#include "providers/provider.hpp"
#include "storage/store.hpp"

namespace openshell::gateway {

/// What entities work with; shared, immutable, outlives them.
struct EntityDeps {
  storage::Store* store = nullptr;
  const providers::CredentialStore* credentials = nullptr;  ///< null: providers deliver nothing
  SessionRegistry sessions;
  ComputeReconciler compute;
  std::shared_ptr<IdentityTable> identities;
  Directory directory;
  std::function<Millis()> now;          ///< wall clock
  std::function<std::string()> new_id;  ///< lower-case UUID v4
  /// Tokens of a launch for the generation that the record names. FAILED_PRECONDITION without a signing key.
  std::function<absl::StatusOr<drivers::LaunchAuthentication>(const records::SandboxRecord&)> mint;
  std::string failure_mode = "fail_closed";
  bool extension_authentication = false;
};

/// How long a person's stop, start or delete is held before the answer says that it goes on.
inline constexpr std::chrono::seconds kLifecycleAnswer{10};
struct SandboxEntityState {
  std::shared_ptr<const EntityDeps> deps;
  SandboxIndex index;
  Reporter reporter;

  records::SandboxRecord record;  // as stored, resource_version included
  bool stored = false;
  bool gone = false;  // removed: every later request is NOT_FOUND
  PolicyHistory policies;
  std::optional<Stored<records::SettingsRecord>> settings;
  DraftRows drafts;
  ReceiptRows receipts;
  std::vector<pb::ServiceEndpoint> services;  // of a new sandbox, until they are stored

  GlobalView global;
  std::optional<SessionInfo> session;
  ProviderEvidence evidence;
  EndpointCursor endpoints;  // of this session

  std::vector<providers::Provider> attached;
  bool attached_known = false;
  std::uint64_t attached_epoch = 0;  // rises with every change of the set or its members: what was read under an older one is not taken
  bool provider_missing = false;
  std::shared_ptr<const openshell::sandbox::v1::GetSandboxConfigResponse> config;  // composed; null: compose anew

  Gate lifecycle;  // stop, start, delete, recovery: held over driver calls
  Gate writes;     // one change of the record: held over its commit
  bool tick_set = false;
  bool draft_refresh_due = false;  // one waits at the gate of writes
  bool recovering = false;  // from a start of the gateway until it is known whether the compute still runs: what the driver tells meanwhile
                            // would show as a failure that is none, since the sandbox is put back at once

  ActorSnapshot snapshot() const;
  inline static const char* name = "sandbox_entity";
};

/// A new sandbox (`stored` false in `initial`: its first message is `create`) or one that the store has.
SandboxEntity::behavior_type sandbox_entity(SandboxEntity::stateful_pointer<SandboxEntityState> self,
                                            std::shared_ptr<const EntityDeps> deps, SandboxIndex index,
                                            std::shared_ptr<const StoredSandbox> initial, bool stored, GlobalView global);

}  // namespace openshell::gateway
