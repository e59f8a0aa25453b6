// Inside the actor of a sandbox: what its handlers share. Not for others.
#pragma once

#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/lifecycle.hpp"
#include "actors/gateway/sandbox_entity.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {

using Entity = SandboxEntity::stateful_pointer<SandboxEntityState>;

template <class T>
using Answer = std::function<void(absl::StatusOr<T>)>;

/// What one commit changes.
struct Change {
  records::SandboxRecord record;  ///< the whole new record
  std::optional<PolicyHistory> policies;
  std::vector<std::uint32_t> policy_rows;  ///< versions whose rows changed
  std::optional<Stored<records::SettingsRecord>> settings;
  std::vector<records::DraftChunkRecord> drafts;
  std::vector<std::string> erased_drafts;  ///< ids
  std::optional<records::ReceiptRecord> receipt;
  /// Asked first in the transaction that writes; its refusal undoes all and is the commit's. May be empty.
  std::function<absl::Status(storage::Transaction&)> check;
  bool configuration = false;  ///< what GetSandboxConfig gives may differ: composed anew, and the supervisor is nudged
};

/// The record as it is now, to be changed.
Change begin(Entity self);
/// Writes it; state, index, identities, nudge and timers follow only after the commit. `then` runs on the actor.
void commit(Entity self, Change change, std::function<void(absl::Status)> then);
/// Deletes everything stored about the sandbox; the entity ends after `then`.
void remove_rows(Entity self, std::function<void(absl::Status)> then);
/// Runs `work` on the store's thread and `then` on the actor.
void read_store(Entity self, std::function<absl::Status(storage::Transaction&)> work, std::function<void(absl::Status)> then);
void call_driver(Entity self, ComputeCall call, std::function<void(absl::StatusOr<std::shared_ptr<const ComputeAnswer>>)> then);
void set_timer(Entity self);

Surroundings surroundings(Entity self);
/// The attached providers are read again before they are next used; a read that is under way is not taken.
void forget_providers(Entity self);
/// Makes sure that the attached providers are known, then runs `then` on the actor.
void with_providers(Entity self, std::function<void(absl::Status)> then);
/// What the effective configuration is composed of; call after with_providers.
ConfigInputs config_inputs(Entity self);
/// The effective configuration; call after with_providers.
std::shared_ptr<const openshell::sandbox::v1::GetSandboxConfigResponse> config(Entity self);

absl::Status not_found();

/// Enters the write gate, runs `op`, delivers what it answers and leaves the gate.
template <class T, class Op>
caf::typed_response_promise<Reply<T>> gated(Entity self, Op op) {
  auto promise = self->make_response_promise<Reply<T>>();
  self->state.writes.enter([self, promise, op]() {
    Answer<T> answer = [self, promise](absl::StatusOr<T> result) mutable {
      self->state.reporter.note_handled();
      Reply<T> reply;
      if (result.ok()) {
        reply.value = std::make_shared<const T>(std::move(*result));
      } else {
        self->state.reporter.note_failed(std::string{result.status().message()});
        reply.value = result.status();
      }
      promise.deliver(std::move(reply));
      self->state.writes.leave();
    };
    if (self->state.gone) return answer(not_found());
    op(std::move(answer));
  });
  return promise;
}

/// Enters the write gate for something that nobody waits for. `op` gets the function that leaves it.
void quietly(Entity self, std::function<void(std::function<void()> leave)> op);

// Handlers, by theme. sandbox_lifecycle.cpp:
void create_sandbox(Entity self, caf::typed_response_promise<Reply<pb::SandboxResponse>> promise);
void recover_sandbox(Entity self);
void stop_sandbox(Entity self, caf::typed_response_promise<Reply<pb::SandboxResponse>> promise);
void start_sandbox(Entity self, caf::typed_response_promise<Reply<pb::SandboxResponse>> promise);
void delete_sandbox(Entity self, std::function<void(Reply<pb::DeleteSandboxResponse>)> to);
void observed(Entity self, const ComputeObservation& observation);
void tick(Entity self);
void main_exit(Entity self, const Ask<pb::ReportMainProcessExitRequest>& ask, Answer<pb::ReportMainProcessExitResponse> answer);
void finalize(Entity self, const Ask<pb::FinalizeMainProcessExitRequest>& ask, Answer<pb::FinalizeMainProcessExitResponse> answer);
/// Deletes an ephemeral sandbox that is done.
void remove_if_done(Entity self);

// sandbox_config.cpp:
void update_config(Entity self, const Ask<pb::UpdateConfigRequest>& ask, Answer<pb::UpdateConfigResponse> answer);
void list_policies(Entity self, const Ask<pb::ListSandboxPoliciesRequest>& ask, Answer<pb::ListSandboxPoliciesResponse> answer);
void policy_status(Entity self, const Ask<pb::GetSandboxPolicyStatusRequest>& ask, Answer<pb::GetSandboxPolicyStatusResponse> answer);
void report_policy(Entity self, const Ask<pb::ReportPolicyStatusRequest>& ask, Answer<pb::ReportPolicyStatusResponse> answer);
void report_configuration(Entity self, const Ask<pb::ReportSandboxConfigurationRequest>& ask,
                          Answer<pb::ReportSandboxConfigurationResponse> answer);
/// A new revision into `change`, or none where `policy` is the newest already. `policy` canonical and checked.
struct StagedPolicy {
  std::uint32_t version = 0;
  std::string hash;
  bool same = false;
};
StagedPolicy stage_policy(Entity self, Change& change, const openshell::sandbox::v1::SandboxPolicy& policy,
                          const std::map<std::string, std::string>& provenance);
/// The policy that a change starts from: the newest revision, else that of the record.
const openshell::sandbox::v1::SandboxPolicy& base_policy(Entity self);
bool has_global_policy(Entity self);

// sandbox_drafts.cpp:
void submit_analysis(Entity self, const Ask<pb::SubmitPolicyAnalysisRequest>& ask, Answer<pb::SubmitPolicyAnalysisResponse> answer);
void get_drafts(Entity self, const Ask<pb::GetDraftPolicyRequest>& ask, Answer<pb::GetDraftPolicyResponse> answer);
void draft_history(Entity self, const Ask<pb::GetDraftHistoryRequest>& ask, Answer<pb::GetDraftHistoryResponse> answer);
void approve_draft(Entity self, const Ask<pb::ApproveDraftChunkRequest>& ask, Answer<pb::ApproveDraftChunkResponse> answer);
void approve_drafts(Entity self, const Ask<pb::ApproveAllDraftChunksRequest>& ask, Answer<pb::ApproveAllDraftChunksResponse> answer);
void reject_draft(Entity self, const Ask<pb::RejectDraftChunkRequest>& ask, Answer<pb::RejectDraftChunkResponse> answer);
void edit_draft(Entity self, const Ask<pb::EditDraftChunkRequest>& ask, Answer<pb::EditDraftChunkResponse> answer);
void undo_draft(Entity self, const Ask<pb::UndoDraftChunkRequest>& ask, Answer<pb::UndoDraftChunkResponse> answer);
void clear_drafts(Entity self, const Ask<pb::ClearDraftChunksRequest>& ask, Answer<pb::ClearDraftChunksResponse> answer);
/// What pending proposals were evaluated against has changed: they are evaluated again, later and once, however often this is called.
void refresh_drafts_later(Entity self);

// sandbox_providers.cpp:
void attach(Entity self, const Ask<pb::AttachSandboxProviderRequest>& ask, Answer<pb::AttachSandboxProviderResponse> answer);
void detach(Entity self, const Ask<pb::DetachSandboxProviderRequest>& ask, Answer<pb::DetachSandboxProviderResponse> answer);
void provider_status(Entity self, const Ask<pb::GetSandboxProviderStatusRequest>& ask, Answer<pb::GetSandboxProviderStatusResponse> answer);
void update_receipt(Entity self, const ProviderUpdated& updated, Answer<pb::ProviderMutationReceipt> answer);
void report_readiness(Entity self, const Ask<pb::ReportProviderReadinessRequest>& ask, Answer<pb::ReportProviderReadinessResponse> answer);
void report_endpoints(Entity self, const Ask<pb::ReportEndpointStatusRequest>& ask, Answer<pb::ReportEndpointStatusResponse> answer);
void provider_environment(Entity self, const Ask<pb::GetSandboxProviderEnvironmentRequest>& ask,
                          Answer<pb::GetSandboxProviderEnvironmentResponse> answer);

}  // namespace openshell::gateway
