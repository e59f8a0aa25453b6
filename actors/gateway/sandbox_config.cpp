// Policies, settings, reports about them, and proposals.
#include <absl/strings/ascii.h>
#include <caf/all.hpp>

#include <algorithm>

#include "actors/gateway/admission.hpp"
#include "actors/gateway/create_request.hpp"
#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/endpoint_statuses.hpp"
#include "actors/gateway/entity_ops.hpp"
#include "actors/gateway/paging.hpp"
#include "actors/gateway/settings.hpp"
#include "actors/gateway/update_config.hpp"
#include "api/errors.hpp"
#include "observability/text.hpp"
#include "policy/baseline.hpp"
#include "policy/hash.hpp"
#include "policy/static_fields.hpp"
#include "policy/validate.hpp"

namespace openshell::gateway {
namespace {

using openshell::sandbox::v1::SandboxPolicy;

void merge_annotations(records::SandboxRecord& record, google::protobuf::Map<std::string, std::string> annotations) {
  drop_owned_annotations(annotations);
  for (const auto& [key, value] : annotations) (*record.mutable_sandbox()->mutable_metadata()->mutable_annotations())[key] = value;
}

pb::UpdateConfigResponse base_response(const records::SandboxRecord& record) {
  pb::UpdateConfigResponse response;
  *response.mutable_annotations() = record.sandbox().metadata().annotations();
  return response;
}

/// A canonical, checked policy becomes a revision, or none where it is the newest already.
void store_policy(Entity self, const Ask<pb::UpdateConfigRequest>& ask, const SandboxPolicy& policy,
                  Answer<pb::UpdateConfigResponse> answer) {
  auto& s = self->state;
  const auto& request = *ask.request;
  auto change = begin(self);
  auto& sandbox = *change.record.mutable_sandbox();
  const auto annotations_before = sandbox.metadata().annotations().size();
  merge_annotations(change.record, request.annotations());
  const bool backfill = !sandbox.spec().has_policy();
  const auto staged = stage_policy(self, change, policy, {request.annotations().begin(), request.annotations().end()});
  const auto respond = [=](const records::SandboxRecord& record) {
    auto response = base_response(record);
    response.set_version(staged.version);
    response.set_policy_hash(staged.hash);
    answer(std::move(response));
  };
  if (staged.same && !backfill && annotations_before == sandbox.metadata().annotations().size() && request.annotations().empty())
    return respond(s.record);
  commit(self, std::move(change), [=](const absl::Status& status) {
    status.ok() ? respond(self->state.record) : answer(api::from_storage("UpdateConfig", status));
  });
}

/// A canonical policy against what surrounds it: what the sandbox runs, and the credentials of its providers.
absl::Status check_surroundings(Entity self, const SandboxPolicy& policy, bool supervisor) {
  auto& s = self->state;
  const auto& sandbox = s.record.sandbox();
  if (sandbox.spec().has_policy() && sandbox.status().configuration_activated()) {
    if (auto status = policy::check_live_update(sandbox.spec().policy(), policy); !status.ok()) return status;
  }
  if (auto status = check_bindings(policy, s.attached, false); !status.ok()) return status;
  if (supervisor) return absl::OkStatus();
  if (auto status = check_composition(policy, s.attached); !status.ok()) return status;
  return check_uninspected(policy, s.attached);
}

void update_policy(Entity self, const Ask<pb::UpdateConfigRequest>& ask, SandboxPolicy policy, Answer<pb::UpdateConfigResponse> answer) {
  const bool supervisor = ask.caller.kind == Caller::Kind::supervisor;
  if (has_global_policy(self)) {
    return answer(absl::FailedPreconditionError("policy is managed globally; delete global policy before sandbox policy update"));
  }
  if (auto status = admit_policy(policy, supervisor); !status.ok()) return answer(status);
  // A supervisor gives back what it received, with paths added: what was proposed stays marked so.
  if (supervisor) policy::keep_proposed_marks(base_policy(self), policy);
  if (auto status = check_surroundings(self, policy, supervisor); !status.ok()) return answer(status);
  store_policy(self, ask, policy, std::move(answer));
}

void merge(Entity self, const Ask<pb::UpdateConfigRequest>& ask, Answer<pb::UpdateConfigResponse> answer) {
  auto& s = self->state;
  if (has_global_policy(self)) {
    return answer(absl::FailedPreconditionError("policy is managed globally; delete global policy before sandbox policy update"));
  }
  const auto& base = base_policy(self);
  auto merged = merge_policy(base, *ask.request);
  if (!merged.ok()) return answer(merged.status());
  if (s.policies.newest() == nullptr && merged->network_policies().empty() && base.network_policies().empty())
    return answer(base_response(s.record));  // version 0
  if (auto status = check_surroundings(self, *merged, false); !status.ok()) return answer(status);
  store_policy(self, ask, *merged, std::move(answer));
}

void update_setting(Entity self, const Ask<pb::UpdateConfigRequest>& ask, Answer<pb::UpdateConfigResponse> answer) {
  auto& s = self->state;
  const auto& request = *ask.request;
  const std::string key{absl::StripAsciiWhitespace(request.setting_key())};
  if (auto status = check_setting_key(key); !status.ok()) return answer(status);
  if (!request.delete_setting()) {
    if (!request.has_setting_value()) return answer(absl::InvalidArgumentError("setting_value is required"));
    if (auto status = check_setting(key, request.setting_value()); !status.ok()) return answer(status);
  }
  if (s.global.settings && s.global.settings->settings().contains(key)) {
    return answer(absl::FailedPreconditionError(
        request.delete_setting() ? cat("setting '", key, "' is managed globally; delete the global setting first")
                                 : cat("setting '", key, "' is managed globally; delete the global setting before sandbox update")));
  }
  auto change = begin(self);
  merge_annotations(change.record, request.annotations());
  auto settings = s.settings.value_or(Stored<records::SettingsRecord>{s.deps->new_id(), {}});
  const auto change_id = s.deps->new_id();
  const bool changed = request.delete_setting() ? delete_setting(settings.value, key, change_id, s.deps->now())
                                                : set_setting(settings.value, key, request.setting_value(), change_id, s.deps->now());
  const auto revision = settings.value.revision();
  if (changed) {
    change.settings = std::move(settings);
    change.configuration = true;
    note_configuration_change(change.record, cat("setting:", change_id), s.deps->now());
  }
  const auto respond = [=](const records::SandboxRecord& record) {
    auto response = base_response(record);
    response.set_settings_revision(revision);
    response.set_deleted(request.delete_setting() && changed);
    answer(std::move(response));
  };
  if (!changed && request.annotations().empty()) return respond(s.record);
  commit(self, std::move(change), [=, keep = ask.request](const absl::Status& status) {
    status.ok() ? respond(self->state.record) : answer(api::from_storage("UpdateConfig", status));
  });
}

}  // namespace

bool has_global_policy(Entity self) { return self->state.global.settings && self->state.global.settings->has_global_policy(); }

const SandboxPolicy& base_policy(Entity self) {
  const auto* newest = self->state.policies.newest();
  return newest != nullptr ? newest->value.policy() : self->state.record.sandbox().spec().policy();
}

StagedPolicy stage_policy(Entity self, Change& change, const SandboxPolicy& policy, const std::map<std::string, std::string>& provenance) {
  auto& s = self->state;
  const auto* newest = s.policies.newest();
  StagedPolicy staged{0, policy::policy_hash(policy).str(), false};
  staged.same = newest != nullptr && newest->value.hash() == staged.hash &&
                std::map<std::string, std::string>{newest->value.provenance().begin(), newest->value.provenance().end()} == provenance;
  auto& spec = *change.record.mutable_sandbox()->mutable_spec();
  if (!spec.has_policy()) *spec.mutable_policy() = policy;
  if (staged.same) {
    staged.version = newest->value.version();
    return staged;
  }
  change.policies = s.policies;
  change.policy_rows = change.policies->append(s.deps->new_id(), policy, staged.hash, provenance, s.deps->now());
  change.configuration = true;
  staged.version = change.policies->newest()->value.version();
  note_configuration_change(change.record, cat(staged.version, ":", staged.hash), s.deps->now());
  return staged;
}

void update_config(Entity self, const Ask<pb::UpdateConfigRequest>& ask, Answer<pb::UpdateConfigResponse> answer) {
  const auto& request = *ask.request;
  if (auto status = check_annotations(request.annotations()); !status.ok()) return answer(status);
  auto kind = classify_update(request, ask.caller);
  if (!kind.ok()) return answer(kind.status());
  const auto stored = self->state.record.sandbox().metadata().resource_version();
  if (request.expected_resource_version() != 0 && request.expected_resource_version() != stored)
    return answer(api::version_conflict("UpdateConfig", stored));
  if (*kind == UpdateKind::setting) return update_setting(self, ask, std::move(answer));
  with_providers(self, [=](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("UpdateConfig", known));
    *kind == UpdateKind::policy ? update_policy(self, ask, ask.request->policy(), answer) : merge(self, ask, answer);
  });
}

void list_policies(Entity self, const Ask<pb::ListSandboxPoliciesRequest>& ask, Answer<pb::ListSandboxPoliciesResponse> answer) {
  auto response = page_of(self->state.policies, *ask.request, *self->state.deps->store, self->state.record.sandbox().metadata().id());
  answer(std::move(response));
}

void policy_status(Entity self, const Ask<pb::GetSandboxPolicyStatusRequest>& ask, Answer<pb::GetSandboxPolicyStatusResponse> answer) {
  const auto& s = self->state;
  const auto* revision = s.policies.find(ask.request->version());
  if (revision == nullptr) return answer(absl::NotFoundError("no policy revision found for this sandbox"));
  pb::GetSandboxPolicyStatusResponse response;
  *response.mutable_revision() = PolicyHistory::to_public(revision->value, true);
  response.set_active_version(s.record.sandbox().status().current_policy_version());
  answer(std::move(response));
}

namespace {

/// What a supervisor made of a revision. False: it was known.
absl::StatusOr<bool> note_outcome(Entity self, Change& change, std::uint32_t version, bool loaded, const std::string& error) {
  const auto& s = self->state;
  change.policies = s.policies;
  auto& status = *change.record.mutable_sandbox()->mutable_status();
  auto report = change.policies->report(version, loaded, error, status.current_policy_version(), s.deps->now());
  if (!report.ok()) return report.status();
  if (!report->changed) {
    change.policies.reset();
    return false;
  }
  // Another effective policy: what was seen under the one before is not its status.
  const auto* before = s.policies.find(status.current_policy_version());
  const auto* now = change.policies->find(report->current);
  const bool other = report->current != status.current_policy_version() &&
                     (before == nullptr || now == nullptr || before->value.hash() != now->value.hash());
  if (other) {
    forget_results(status);
    status.clear_last_token_grant_failure();
  }
  status.set_current_policy_version(report->current);
  change.policy_rows = report->versions;
  return true;
}

}  // namespace

void report_policy(Entity self, const Ask<pb::ReportPolicyStatusRequest>& ask, Answer<pb::ReportPolicyStatusResponse> answer) {
  const auto& request = *ask.request;
  if (request.version() == 0) return answer(absl::InvalidArgumentError("version is required"));
  if (request.status() != pb::POLICY_STATUS_LOADED && request.status() != pb::POLICY_STATUS_FAILED) {
    return answer(absl::InvalidArgumentError("status must be LOADED or FAILED"));
  }
  auto change = begin(self);
  auto changed = note_outcome(self, change, request.version(), request.status() == pb::POLICY_STATUS_LOADED, request.load_error());
  if (!changed.ok()) return answer(changed.status());
  if (!*changed) return answer(pb::ReportPolicyStatusResponse{});
  commit(self, std::move(change), [=](const absl::Status& committed) {
    committed.ok() ? answer(pb::ReportPolicyStatusResponse{}) : answer(api::from_storage("report policy status", committed));
  });
}

void report_configuration(Entity self, const Ask<pb::ReportSandboxConfigurationRequest>& ask,
                          Answer<pb::ReportSandboxConfigurationResponse> answer) {
  with_providers(self, [=](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("report sandbox configuration", known));
    auto change = begin(self);
    const auto current = config(self);
    auto changed = report_configuration(change.record, *ask.request, *current, surroundings(self));
    if (!changed.ok()) return answer(changed.status());
    if (!*changed) return answer(pb::ReportSandboxConfigurationResponse{});
    // What is accepted is in force. The supervisor says so of the revision in a report of its own, which may come later; a sandbox that is
    // Ready has no pending revision (ACK-13, ACK-15).
    const bool accepted = ask.request->admission().state() == pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED;
    if (accepted && current->policy_source() == openshell::sandbox::v1::POLICY_SOURCE_SANDBOX && current->version() > 0) {
      if (auto noted = note_outcome(self, change, current->version(), true, {}); !noted.ok()) return answer(noted.status());
    }
    commit(self, std::move(change), [=](const absl::Status& status) {
      status.ok() ? answer(pb::ReportSandboxConfigurationResponse{}) : answer(api::from_storage("report sandbox configuration", status));
    });
  });
}

}  // namespace openshell::gateway
