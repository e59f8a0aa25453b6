// Policies, settings, reports about them, and proposals.
#include <absl/strings/ascii.h>
#include <caf/all.hpp>

#include <algorithm>

#include "actors/gateway/admission.hpp"
#include "actors/gateway/create_request.hpp"
#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/entity_ops.hpp"
#include "actors/gateway/paging.hpp"
#include "actors/gateway/settings.hpp"
#include "actors/gateway/update_config.hpp"
#include "api/errors.hpp"
#include "observability/text.hpp"
#include "policy/hash.hpp"
#include "policy/static_fields.hpp"
#include "policy/validate.hpp"

namespace openshell::gateway {
namespace {

using openshell::sandbox::v1::SandboxPolicy;

bool has_global_policy(Entity self) { return self->state.global.settings && self->state.global.settings->has_global_policy(); }

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
  const auto hash = policy::policy_hash(policy).str();
  const std::map<std::string, std::string> provenance{request.annotations().begin(), request.annotations().end()};
  const auto* newest = s.policies.newest();
  const bool same = newest != nullptr && newest->value.hash() == hash &&
                    std::map<std::string, std::string>{newest->value.provenance().begin(), newest->value.provenance().end()} == provenance;
  const bool backfill = !sandbox.spec().has_policy();
  if (backfill) *sandbox.mutable_spec()->mutable_policy() = policy;
  std::uint32_t version = same ? newest->value.version() : 0;
  if (!same) {
    change.policies = s.policies;
    change.policy_rows = change.policies->append(s.deps->new_id(), policy, hash, provenance, s.deps->now());
    change.configuration = true;
    version = change.policies->newest()->value.version();
    note_configuration_change(change.record, cat(version, ":", hash), s.deps->now());
  }
  const auto respond = [=](const records::SandboxRecord& record) {
    auto response = base_response(record);
    response.set_version(version);
    response.set_policy_hash(hash);
    answer(std::move(response));
  };
  if (same && !backfill && annotations_before == sandbox.metadata().annotations().size() && request.annotations().empty())
    return respond(s.record);
  commit(self, std::move(change), [=](const absl::Status& status) {
    status.ok() ? respond(self->state.record) : answer(api::from_storage("UpdateConfig", status));
  });
}

void update_policy(Entity self, const Ask<pb::UpdateConfigRequest>& ask, SandboxPolicy policy, Answer<pb::UpdateConfigResponse> answer) {
  auto& s = self->state;
  const bool supervisor = ask.caller.kind == Caller::Kind::supervisor;
  if (has_global_policy(self)) {
    return answer(absl::FailedPreconditionError("policy is managed globally; delete global policy before sandbox policy update"));
  }
  if (auto status = admit_policy(policy, supervisor); !status.ok()) return answer(status);
  const auto& sandbox = s.record.sandbox();
  if (sandbox.spec().has_policy() && sandbox.status().configuration_activated()) {
    if (auto status = policy::check_live_update(sandbox.spec().policy(), policy); !status.ok()) return answer(status);
  }
  if (auto status = check_bindings(policy, s.attached, false); !status.ok()) return answer(status);
  if (!supervisor) {
    if (auto status = check_uninspected(policy); !status.ok()) return answer(status);
  }
  store_policy(self, ask, policy, std::move(answer));
}

void merge(Entity self, const Ask<pb::UpdateConfigRequest>& ask, Answer<pb::UpdateConfigResponse> answer) {
  auto& s = self->state;
  const auto* newest = s.policies.newest();
  const SandboxPolicy& base = newest != nullptr ? newest->value.policy() : s.record.sandbox().spec().policy();
  auto merged = merge_policy(base, *ask.request);
  if (!merged.ok()) return answer(merged.status());
  if (newest == nullptr && merged->network_policies().empty() && base.network_policies().empty())
    return answer(base_response(s.record));  // version 0
  update_policy(self, ask, std::move(*merged), std::move(answer));
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

/// One proposal as it will lie in the store. An error rejects it, not the call.
absl::StatusOr<records::DraftChunkRecord> draft_of(Entity self, const pb::PolicyChunk& proposed, const std::string& mode,
                                                   std::uint64_t version) {
  if (proposed.rule_name().empty()) return absl::InvalidArgumentError("chunk missing rule_name");
  if (proposed.rule_name().starts_with(policy::kProviderRulePrefix)) {
    return absl::InvalidArgumentError(cat("chunk '", proposed.rule_name(), "' uses reserved '_provider_' rule-name prefix"));
  }
  if (!proposed.has_proposed_rule()) return absl::InvalidArgumentError(cat("chunk '", proposed.rule_name(), "' missing proposed_rule"));
  const auto now = self->state.deps->now();
  records::DraftChunkRecord draft;
  draft.set_mode(mode);
  draft.set_draft_version(version);
  auto& chunk = *draft.mutable_chunk();
  chunk = proposed;
  for (auto& endpoint : *chunk.mutable_proposed_rule()->mutable_endpoints()) endpoint.set_host(absl::AsciiStrToLower(endpoint.host()));
  chunk.set_id(self->state.deps->new_id());
  chunk.set_status("pending");
  chunk.set_validation_result("not evaluated");
  chunk.set_confidence(std::clamp(proposed.confidence(), 0.0F, 1.0F));
  chunk.set_hit_count(std::clamp(proposed.hit_count(), 1, 100));
  chunk.clear_security_notes();
  chunk.clear_application_error();
  chunk.clear_review_token();
  chunk.clear_denial_summary_ids();
  for (const auto& id : proposed.denial_summary_ids()) {
    if (is_uuid(id) && static_cast<std::size_t>(chunk.denial_summary_ids_size()) < kMaxDenialIds) chunk.add_denial_summary_ids(id);
  }
  set_millis(chunk.mutable_created_time(), now);
  if (!chunk.has_first_seen_time()) set_millis(chunk.mutable_first_seen_time(), now);
  if (!chunk.has_last_seen_time()) set_millis(chunk.mutable_last_seen_time(), now);
  const auto& rule = chunk.proposed_rule();
  if (chunk.binary().empty() && rule.binaries_size() > 0) chunk.set_binary(rule.binaries(0).path());
  if (mode == "mechanistic" && rule.endpoints_size() > 0) {
    const auto& endpoint = rule.endpoints(0);
    draft.set_dedup_key(cat(endpoint.host(), "|", endpoint.ports_size() > 0 ? endpoint.ports(0) : endpoint.port(), "|", chunk.binary()));
  }
  return draft;
}

}  // namespace

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

void report_policy(Entity self, const Ask<pb::ReportPolicyStatusRequest>& ask, Answer<pb::ReportPolicyStatusResponse> answer) {
  auto& s = self->state;
  const auto& request = *ask.request;
  if (request.version() == 0) return answer(absl::InvalidArgumentError("version is required"));
  if (request.status() != pb::POLICY_STATUS_LOADED && request.status() != pb::POLICY_STATUS_FAILED) {
    return answer(absl::InvalidArgumentError("status must be LOADED or FAILED"));
  }
  auto change = begin(self);
  change.policies = s.policies;
  auto& status = *change.record.mutable_sandbox()->mutable_status();
  auto report = change.policies->report(request.version(), request.status() == pb::POLICY_STATUS_LOADED, request.load_error(),
                                        status.current_policy_version(), s.deps->now());
  if (!report.ok()) return answer(report.status());
  if (!report->changed) return answer(pb::ReportPolicyStatusResponse{});
  status.set_current_policy_version(report->current);
  change.policy_rows = report->versions;
  commit(self, std::move(change), [=](const absl::Status& committed) {
    committed.ok() ? answer(pb::ReportPolicyStatusResponse{}) : answer(api::from_storage("report policy status", committed));
  });
}

void report_configuration(Entity self, const Ask<pb::ReportSandboxConfigurationRequest>& ask,
                          Answer<pb::ReportSandboxConfigurationResponse> answer) {
  with_providers(self, [=](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("report sandbox configuration", known));
    auto change = begin(self);
    auto changed = report_configuration(change.record, *ask.request, *config(self), surroundings(self));
    if (!changed.ok()) return answer(changed.status());
    if (!*changed) return answer(pb::ReportSandboxConfigurationResponse{});
    commit(self, std::move(change), [=](const absl::Status& status) {
      status.ok() ? answer(pb::ReportSandboxConfigurationResponse{}) : answer(api::from_storage("report sandbox configuration", status));
    });
  });
}

void submit_analysis(Entity self, const Ask<pb::SubmitPolicyAnalysisRequest>& ask, Answer<pb::SubmitPolicyAnalysisResponse> answer) {
  auto& s = self->state;
  const auto& request = *ask.request;
  pb::SubmitPolicyAnalysisResponse response;
  if (request.proposed_chunks().empty()) return answer(std::move(response));
  auto change = begin(self);
  std::uint64_t version = 1;
  std::size_t pending = 0;
  std::map<std::string, records::DraftChunkRecord> by_key;
  for (const auto& [id, draft] : s.drafts) {
    version = std::max(version, draft.draft_version() + 1);
    pending += draft.chunk().status() == "pending" ? 1 : 0;
    if (!draft.dedup_key().empty()) by_key[draft.dedup_key()] = draft;
  }
  std::map<std::string, records::DraftChunkRecord> written;
  for (const auto& proposed : request.proposed_chunks()) {
    auto draft = draft_of(self, proposed, request.analysis_mode(), version);
    if (draft.ok() && !by_key.contains(draft->dedup_key()) && pending >= kMaxPendingDrafts) {
      draft = absl::ResourceExhaustedError(
          cat("chunk '", proposed.rule_name(), "': ", kMaxPendingDrafts, " proposals of this sandbox wait for a decision"));
    }
    if (!draft.ok()) {
      response.set_rejected_chunks(response.rejected_chunks() + 1);
      response.add_rejection_reasons(std::string{to_std(draft.status().message())});
      continue;
    }
    if (const auto known = by_key.find(draft->dedup_key()); !draft->dedup_key().empty() && known != by_key.end()) {
      auto& chunk = *known->second.mutable_chunk();  // seen again: counted, never replaced
      chunk.set_hit_count(chunk.hit_count() + draft->chunk().hit_count());
      *chunk.mutable_last_seen_time() = draft->chunk().last_seen_time();
      draft = known->second;
    } else {
      ++pending;
    }
    if (!draft->dedup_key().empty()) by_key[draft->dedup_key()] = *draft;
    written[draft->chunk().id()] = *draft;
    response.set_accepted_chunks(response.accepted_chunks() + 1);
    response.add_accepted_chunk_ids(draft->chunk().id());
  }
  if (written.empty()) return answer(std::move(response));
  for (auto& [id, draft] : written) change.drafts.push_back(std::move(draft));
  commit(self, std::move(change),
         [=](const absl::Status& status) { status.ok() ? answer(response) : answer(api::from_storage("submit policy analysis", status)); });
}

}  // namespace openshell::gateway
