// Attachment of providers, what became of it, and their environment.
#include <caf/all.hpp>

#include <algorithm>

#include "actors/gateway/admission.hpp"
#include "actors/gateway/attachments.hpp"
#include "actors/gateway/create_request.hpp"
#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/endpoint_statuses.hpp"
#include "actors/gateway/entity_ops.hpp"
#include "api/errors.hpp"
#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

const providers::Provider* find(const std::vector<providers::Provider>& attached, const std::string& name) {
  const auto it = std::find_if(attached.begin(), attached.end(), [&](const auto& provider) { return provider.name == name; });
  return it == attached.end() ? nullptr : &*it;
}

records::ReceiptRecord receipt_of(Entity self, const Change& change, const std::string& provider, pb::ProviderMutationKind kind,
                                  const std::vector<providers::Provider>& attached, std::string mutation_id = {}) {
  const auto& s = self->state;
  const auto& sandbox = change.record.sandbox();
  records::ReceiptRecord record;
  auto& receipt = *record.mutable_receipt();
  receipt.set_receipt_id(s.deps->new_id());
  receipt.set_mutation_id(mutation_id.empty() ? s.deps->new_id() : std::move(mutation_id));
  receipt.set_provider(provider);
  receipt.set_workspace(sandbox.metadata().workspace());
  receipt.set_kind(kind);
  set_millis(receipt.mutable_persisted_time(), s.deps->now());
  auto& desired = *receipt.mutable_desired();
  desired.set_sandbox_id(sandbox.metadata().id());
  desired.set_sandbox(sandbox.metadata().name());
  desired.set_attachment_epoch(sandbox.spec().provider_attachment_epoch());
  if (const auto* object = find(attached, provider); object != nullptr && kind != pb::PROVIDER_MUTATION_KIND_DETACH) {
    desired.set_provider_id(object->id);
    desired.set_provider_resource_version(object->resource_version);
  }
  const auto composed = compose_config({change.record, s.policies, s.settings ? &s.settings->value : nullptr, s.global, attached, false,
                                        s.deps->failure_mode, s.deps->extension_authentication});
  desired.set_provider_env_revision(composed.provider_env_revision());
  desired.set_config_revision(composed.config_revision());
  desired.set_policy_hash(composed.policy_hash());
  auto& operation = *record.mutable_operation();
  operation.set_operation_id(receipt.receipt_id());
  operation.set_sandbox_id(sandbox.metadata().id());
  operation.set_component(pb::CONFIG_COMPONENT_PROVIDER_ENVIRONMENT);
  *operation.mutable_target_revision()->mutable_provider_target() = desired;
  operation.set_state(pb::CONFIG_UPDATE_OPERATION_STATE_PENDING);
  const auto phase = sandbox.status().phase();
  if (phase == pb::SANDBOX_PHASE_STOPPED || phase == pb::SANDBOX_PHASE_COMPLETED)
    operation.set_state(pb::CONFIG_UPDATE_OPERATION_STATE_INACTIVE);
  *operation.mutable_created_time() = receipt.persisted_time();
  *operation.mutable_updated_time() = receipt.persisted_time();
  return record;
}

absl::Status check_version(Entity self, std::uint64_t expected, std::string_view operation) {
  const auto stored = self->state.record.sandbox().metadata().resource_version();
  return expected == 0 || expected == stored ? absl::OkStatus() : api::version_conflict(operation, stored);
}

/// The new set of names, checked in one read of the store, then written with its receipt.
template <class Respond>
void change_set(Entity self, std::vector<std::string> names, bool changed, const std::string& provider, pb::ProviderMutationKind kind,
                std::string operation, Respond respond, std::function<void(absl::Status)> failed) {
  auto attached = std::make_shared<std::vector<providers::Provider>>();
  const auto& sandbox = self->state.record.sandbox();
  read_store(
      self,
      [=, now = self->state.deps->now(), workspace = sandbox.metadata().workspace()](storage::Transaction& tx) {
        if (kind == pb::PROVIDER_MUTATION_KIND_ATTACH) {
          if (auto status = providers::check_attachment(tx, workspace, names, now / 1000); !status.ok()) return status;
        }
        auto loaded = providers::load_attached(tx, workspace, names);
        if (loaded.ok()) *attached = std::move(*loaded);
        return loaded.status();
      },
      [=](const absl::Status& read) {
        if (!read.ok()) return failed(read);
        auto& s = self->state;
        const auto& base = base_policy(self);
        if (auto status = check_bindings(base, *attached, false); !status.ok()) return failed(status);
        if (changed && kind == pb::PROVIDER_MUTATION_KIND_ATTACH && !has_global_policy(self)) {
          if (auto status = check_composition(base, *attached); !status.ok()) return failed(status);
          if (auto status = check_uninspected(base, *attached); !status.ok()) return failed(status);
        }
        auto change = begin(self);
        auto& spec = *change.record.mutable_sandbox()->mutable_spec();
        if (changed) {
          spec.clear_providers();
          for (const auto& name : names) spec.add_providers(name);
          spec.set_provider_attachment_epoch(s.deps->new_id());
          change.configuration = true;
          auto& provisioning = *change.record.mutable_sandbox()->mutable_status()->mutable_provisioning();
          if (provisioning.has_deadline()) {
            provisioning.set_attachment_change_id(s.deps->new_id());
            set_millis(provisioning.mutable_attachment_change_time(), s.deps->now());
          }
          note_configuration_change(change.record, spec.provider_attachment_epoch(), s.deps->now());
        }
        auto receipt = receipt_of(self, change, provider, kind, *attached);
        change.receipt = receipt;
        // A provider may have been deleted since it was read. Its deletion looks for attachments in its own transaction: one of the two
        // sees the other.
        auto refused = std::make_shared<absl::Status>();
        change.check = [attached, refused](storage::Transaction& tx) { return *refused = check_unchanged(tx, *attached); };
        commit(self, std::move(change), [=](const absl::Status& status) {
          if (!refused->ok()) return failed(*refused);
          if (!status.ok()) return failed(api::from_storage(operation, status));
          // Reads that began before are not taken any more. Nor is this set the last word: of a change to a provider that was not attached
          // until now, nothing reached us.
          forget_providers(self);
          self->state.attached = *attached;
          self->state.provider_missing = false;
          respond(self->state.record.sandbox(), receipt.receipt());
        });
      });
}

std::vector<std::string> attached_names(Entity self) {
  const auto& names = self->state.record.sandbox().spec().providers();
  return {names.begin(), names.end()};
}

ProviderEvidence::Wanted wanted(Entity self, const std::string& provider) {
  const auto& s = self->state;
  const auto composed = config(self);
  ProviderEvidence::Wanted out;
  out.attachment_epoch = s.record.sandbox().spec().provider_attachment_epoch();
  out.provider_env_revision = composed->provider_env_revision();
  out.config_revision = composed->config_revision();
  out.policy_hash = composed->policy_hash();
  if (const auto* object = find(s.attached, provider)) {
    out.attached = true;
    out.provider_id = object->id;
    out.provider_version = object->resource_version;
  }
  return out;
}

/// An operation ends once, when its receipt's state says so.
bool settle(records::ReceiptRecord& receipt, pb::ProviderReadinessStatus& status, Millis now) {
  auto& operation = *receipt.mutable_operation();
  if (operation.state() != pb::CONFIG_UPDATE_OPERATION_STATE_PENDING) return false;
  if (status.state() == pb::PROVIDER_READINESS_STATE_READY || status.state() == pb::PROVIDER_READINESS_STATE_REVOKED) {
    operation.set_state(pb::CONFIG_UPDATE_OPERATION_STATE_APPLIED);
    operation.set_outcome(pb::CONFIG_APPLY_OUTCOME_APPLIED);
  } else if (status.state() == pb::PROVIDER_READINESS_STATE_SUPERSEDED) {
    operation.set_state(pb::CONFIG_UPDATE_OPERATION_STATE_SUPERSEDED);
    operation.set_outcome(pb::CONFIG_APPLY_OUTCOME_IGNORED_STALE);
  } else {
    return false;
  }
  set_millis(operation.mutable_completed_time(), now);
  set_millis(operation.mutable_updated_time(), now);
  *status.mutable_operation() = operation;
  return true;
}

pb::GetSandboxProviderEnvironmentResponse to_wire(const providers::Environment& environment) {
  pb::GetSandboxProviderEnvironmentResponse out;
  for (const auto& [key, value] : environment.values) (*out.mutable_environment())[key] = std::string{value.reveal()};
  for (const auto& [key, at] : environment.expires_at) (*out.mutable_credential_expiration_times())[key].set_seconds(at);
  for (const auto& [key, binding] : environment.bindings) {
    auto& to = (*out.mutable_static_credential_bindings())[key];
    to.set_credential_identity(binding.credential_identity);
    to.set_workload_credential_handle(binding.workload_credential_handle);
    for (const auto& endpoint : binding.endpoints) {
      auto& added = *to.add_endpoints();
      added.set_host(endpoint.host);
      added.set_port(endpoint.port);
      added.set_path(endpoint.path);
    }
  }
  for (const auto& key : environment.non_secret_keys) out.add_non_secret_environment_keys(key);
  out.set_provider_env_revision(environment.revision);
  // The wire has no field of its own for the placement of a static credential: an entry here without a grant, of a key that is bound, is
  // one.
  for (const auto& [key, placement] : environment.placements) {
    auto& to = (*out.mutable_dynamic_credentials())[key];
    to.set_name(key);
    to.set_auth_style(placement.auth_style);
    to.set_header_name(placement.header_name);
    to.set_query_param(placement.query_param);
    to.set_path_template(placement.path_template);
  }
  for (const auto& key : environment.stable_keys) out.add_stable_placeholder_environment_keys(key);
  out.set_supports_stable_placeholder_environment_keys(true);
  switch (environment.readiness) {
    case providers::Readiness::kCredentialsWithheld:
      out.set_readiness_reason(pb::PROVIDER_READINESS_REASON_CREDENTIALS_WITHHELD);
      break;
    case providers::Readiness::kCredentialExpired:
      out.set_readiness_reason(pb::PROVIDER_READINESS_REASON_CREDENTIAL_EXPIRED);
      break;
    default:
      break;
  }
  return out;
}

absl::Status other_configuration() {
  return absl::FailedPreconditionError("tool server endpoint status revisions do not match the current sandbox configuration");
}

}  // namespace

void attach(Entity self, const Ask<pb::AttachSandboxProviderRequest>& ask, Answer<pb::AttachSandboxProviderResponse> answer) {
  const auto& name = ask.request->provider();
  if (name.empty()) return answer(absl::InvalidArgumentError("provider is required"));
  if (name.size() > kMaxName)
    return answer(api::invalid_field("provider", cat("provider exceeds maximum length (", name.size(), " > ", kMaxName, ")")));
  if (auto status = check_version(self, ask.request->expected_resource_version(), "attach sandbox provider"); !status.ok())
    return answer(status);
  auto names = attached_names(self);
  const bool fresh = std::find(names.begin(), names.end(), name) == names.end();
  if (fresh && names.size() >= kMaxProviders)
    return answer(api::invalid_field("provider", cat("providers list exceeds maximum (", kMaxProviders, ")")));
  if (fresh) names.push_back(name);
  change_set(
      self, std::move(names), fresh, name, pb::PROVIDER_MUTATION_KIND_ATTACH, "attach sandbox provider",
      [=](const pb::Sandbox& sandbox, const pb::ProviderMutationReceipt& receipt) {
        pb::AttachSandboxProviderResponse response;
        *response.mutable_sandbox() = sandbox;
        response.set_attached(fresh);
        *response.mutable_receipt() = receipt;
        answer(std::move(response));
      },
      answer);
}

void detach(Entity self, const Ask<pb::DetachSandboxProviderRequest>& ask, Answer<pb::DetachSandboxProviderResponse> answer) {
  const auto& name = ask.request->provider();
  if (name.empty()) return answer(absl::InvalidArgumentError("provider is required"));
  if (auto status = check_version(self, ask.request->expected_resource_version(), "detach sandbox provider"); !status.ok())
    return answer(status);
  auto names = attached_names(self);
  const auto it = std::find(names.begin(), names.end(), name);
  const bool there = it != names.end();
  if (there) names.erase(it);
  change_set(
      self, std::move(names), there, name, pb::PROVIDER_MUTATION_KIND_DETACH, "detach sandbox provider",
      [=](const pb::Sandbox& sandbox, const pb::ProviderMutationReceipt& receipt) {
        pb::DetachSandboxProviderResponse response;
        *response.mutable_sandbox() = sandbox;
        response.set_detached(there);
        *response.mutable_receipt() = receipt;
        answer(std::move(response));
      },
      answer);
}

void provider_status(Entity self, const Ask<pb::GetSandboxProviderStatusRequest>& ask,
                     Answer<pb::GetSandboxProviderStatusResponse> answer) {
  const auto request = ask.request;
  if (request->receipt_id().empty() && request->provider().empty())
    return answer(absl::InvalidArgumentError("provider or receipt_id is required"));
  with_providers(self, [=](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("get sandbox provider status", known));
    auto& s = self->state;
    auto change = begin(self);
    records::ReceiptRecord receipt;
    bool write = false;
    if (!request->receipt_id().empty()) {
      const auto it = s.receipts.find(request->receipt_id());
      const bool ours = it != s.receipts.end() && (request->provider().empty() || it->second.receipt().provider() == request->provider());
      if (!ours) return answer(absl::NotFoundError("provider receipt not found"));
      receipt = it->second;
    } else {
      if (find(s.attached, request->provider()) == nullptr) return answer(absl::NotFoundError("provider not found"));
      receipt = receipt_of(self, change, request->provider(), pb::PROVIDER_MUTATION_KIND_OBSERVE, s.attached);
      for (const auto& [id, known_receipt] : s.receipts) {  // the same target observed before: the same receipt
        if (known_receipt.receipt().kind() == pb::PROVIDER_MUTATION_KIND_OBSERVE &&
            known_receipt.receipt().desired().SerializeAsString() == receipt.receipt().desired().SerializeAsString() &&
            known_receipt.receipt().provider() == request->provider()) {
          receipt = known_receipt;
        }
      }
      write = !s.receipts.contains(receipt.receipt().receipt_id());
    }
    auto status =
        s.evidence.evaluate(receipt, wanted(self, receipt.receipt().provider()), s.session ? &*s.session : nullptr, s.deps->now());
    write = settle(receipt, status, s.deps->now()) || write;
    pb::GetSandboxProviderStatusResponse response;
    *response.mutable_status() = std::move(status);
    if (!write) return answer(std::move(response));
    change.receipt = receipt;
    commit(self, std::move(change), [=](const absl::Status& written) {
      written.ok() ? answer(response) : answer(api::from_storage("get sandbox provider status", written));
    });
  });
}

void update_receipt(Entity self, const ProviderUpdated& updated, Answer<pb::ProviderMutationReceipt> answer) {
  forget_providers(self);  // the note that the provider changed may still be on its way
  with_providers(self, [=](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("update provider", known));
    if (find(self->state.attached, updated.provider) == nullptr) return answer(absl::NotFoundError("provider is not attached"));
    auto change = begin(self);
    auto receipt = receipt_of(self, change, updated.provider, pb::PROVIDER_MUTATION_KIND_UPDATE, self->state.attached, updated.mutation_id);
    change.receipt = receipt;
    commit(self, std::move(change), [=](const absl::Status& written) {
      written.ok() ? answer(receipt.receipt()) : answer(api::from_storage("update provider", written));
    });
  });
}

void report_readiness(Entity self, const Ask<pb::ReportProviderReadinessRequest>& ask, Answer<pb::ReportProviderReadinessResponse> answer) {
  auto& s = self->state;
  const bool ready = s.record.sandbox().status().phase() == pb::SANDBOX_PHASE_READY;
  if (auto status = s.evidence.report(*ask.request, s.session ? &*s.session : nullptr, ready, s.deps->now()); !status.ok())
    return answer(status);
  pb::ReportProviderReadinessResponse response;
  response.set_accepted_sequence(ask.request->observation().sequence());
  response.mutable_report_interval()->set_seconds(kReportInterval / 1000);
  response.mutable_observation_ttl()->set_seconds(kObservationLifetime / 1000);
  answer(std::move(response));
}

void report_endpoints(Entity self, const Ask<pb::ReportEndpointStatusRequest>& ask, Answer<pb::ReportEndpointStatusResponse> answer) {
  auto& s = self->state;
  const auto& request = *ask.request;
  if (request.policy_hash().empty()) return answer(absl::InvalidArgumentError("policy_hash is required"));
  if (request.supervisor_session_id().empty()) return answer(absl::InvalidArgumentError("supervisor_session_id is required"));
  if (request.report_sequence() == 0) return answer(absl::InvalidArgumentError("report_sequence is required"));
  if (!s.session || s.session->session_id != request.supervisor_session_id()) {
    return answer(absl::PermissionDeniedError("tool server endpoint status requires the active supervisor session"));
  }
  with_providers(self, [=, keep = ask.request](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("report endpoint status", known));
    auto& now = self->state;
    const auto composed = config(self);
    if (composed->policy_hash() != keep->policy_hash() || composed->provider_env_revision() != keep->provider_env_revision()) {
      return answer(other_configuration());
    }
    const auto acknowledged = now.record.sandbox().status().current_policy_version();
    const bool own = composed->policy_source() == openshell::sandbox::v1::POLICY_SOURCE_SANDBOX;
    if (own && acknowledged != 0 && acknowledged != composed->version()) return answer(other_configuration());
    auto fresh = advance(now.endpoints, *keep);
    if (!fresh.ok()) return answer(fresh.status());
    if (!*fresh) return answer(pb::ReportEndpointStatusResponse{});
    auto change = begin(self);
    if (auto status = apply_endpoints(*change.record.mutable_sandbox()->mutable_status(), *keep, composed->policy(), now.deps->now());
        !status.ok())
      return answer(status);
    commit(self, std::move(change), [=](const absl::Status& committed) {
      auto& after = self->state;
      if (!committed.ok()) return answer(api::from_storage("report endpoint status", committed));
      if (!after.session || after.session->session_id != keep->supervisor_session_id()) {
        return answer(
            absl::PermissionDeniedError("tool server endpoint status supervisor session was replaced while persisting the report"));
      }
      after.endpoints = cursor_of(*keep);
      answer(pb::ReportEndpointStatusResponse{});
    });
  });
}

void provider_environment(Entity self, const Ask<pb::GetSandboxProviderEnvironmentRequest>& ask,
                          Answer<pb::GetSandboxProviderEnvironmentResponse> answer) {
  const auto request = ask.request;
  with_providers(self, [=](const absl::Status& known) {
    if (!known.ok()) return answer(api::from_storage("get sandbox provider environment", known));
    auto& s = self->state;
    const auto composed = config(self);
    auto bindings = policy_bindings(composed->policy());
    auto out = std::make_shared<pb::GetSandboxProviderEnvironmentResponse>();
    const auto epoch = s.record.sandbox().spec().provider_attachment_epoch();
    const auto respond = [=](const absl::Status& status) {
      if (!status.ok()) return answer(status);
      if (out->provider_env_revision() == 0) out->set_provider_env_revision(composed->provider_env_revision());
      out->set_provider_attachment_epoch(epoch);
      out->set_policy_hash(composed->policy_hash());
      answer(*out);
    };
    if (s.attached.empty() || s.deps->credentials == nullptr) return respond(absl::OkStatus());
    const providers::EnvironmentOptions options{s.record.sandbox().metadata().id(), s.deps->now() / 1000,
                                                request->supports_static_credential_bindings(),
                                                request->supports_stable_placeholder_environment_keys()};
    read_store(
        self,
        [=, attached = s.attached, credentials = s.deps->credentials](storage::Transaction& tx) {
          auto environment = providers::environment(tx, *credentials, attached, bindings, options);
          if (environment.ok()) *out = to_wire(*environment);
          return environment.status();
        },
        respond);
  });
}

}  // namespace openshell::gateway
