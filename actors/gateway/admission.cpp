#include "actors/gateway/admission.hpp"

#include <algorithm>

#include "actors/gateway/effective_config.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {
namespace {

bool matches(const pb::SandboxConfigurationAdmission& report, const openshell::sandbox::v1::GetSandboxConfigResponse& current) {
  return report.policy_version() == current.version() && report.policy_hash() == current.policy_hash() &&
         report.config_revision() == current.config_revision() && report.provider_env_revision() == current.provider_env_revision();
}

absl::StatusOr<bool> register_instance(records::SandboxRecord& record, const std::string& instance, const std::string& expected,
                                       Millis now) {
  auto& admission = *record.mutable_sandbox()->mutable_status()->mutable_configuration_admission();
  if (admission.instance_id() == instance) return false;
  const auto& retired = record.retired_instances();
  const bool returns = std::find(retired.begin(), retired.end(), instance) != retired.end();
  if (returns || admission.instance_id() != expected) return absl::AbortedError("supervisor registration fence has changed");
  if (!admission.instance_id().empty()) {
    record.add_retired_instances(admission.instance_id());
    if (record.retired_instances_size() > kMaxRetiredInstances) record.mutable_retired_instances()->DeleteSubrange(0, 1);
  }
  admission.Clear();
  admission.set_instance_id(instance);
  admission.set_state(pb::CONFIGURATION_ADMISSION_STATE_PENDING);
  auto& status = *record.mutable_sandbox()->mutable_status();
  auto& provisioning = *status.mutable_provisioning();
  if (!provisioning.has_admission_start_time()) set_millis(provisioning.mutable_admission_start_time(), now);
  set_condition(status, "ConfigurationReady", false, "ConfigurationPending", "Waiting for the first accepted configuration", now);
  return true;
}

void reject(records::SandboxRecord& record, const std::string& diagnostic, Millis now) {
  auto& status = *record.mutable_sandbox()->mutable_status();
  status.mutable_configuration_admission()->set_error(diagnostic);
  set_condition(status, "ConfigurationReady", false, "ConfigurationInvalid", diagnostic, now);
  if (status.phase() != pb::SANDBOX_PHASE_PROVISIONING && status.phase() != pb::SANDBOX_PHASE_STARTING) return;  // a running one goes on
  set_condition(status, "Ready", false, "ConfigurationInvalid", diagnostic, now);
  auto& provisioning = *status.mutable_provisioning();
  if (!provisioning.has_deadline() || provisioning.has_first_rejection_time()) return;
  set_millis(provisioning.mutable_first_rejection_time(), now);
  set_millis(provisioning.mutable_deadline(), std::max(to_millis(provisioning.deadline()), now + kRepairWindow));
}

}  // namespace

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  bool nil = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
    if (hyphen != (c == '-')) return false;
    if (hyphen) continue;
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    nil = nil && c == '0';
  }
  return !nil;
}

absl::StatusOr<bool> report_configuration(records::SandboxRecord& record, const pb::ReportSandboxConfigurationRequest& request,
                                          const openshell::sandbox::v1::GetSandboxConfigResponse& current, const Surroundings& at) {
  if (!request.has_admission()) return absl::InvalidArgumentError("admission is required");
  const auto& report = request.admission();
  if (!is_uuid(report.instance_id())) return absl::InvalidArgumentError("instance_id must be a UUID");
  if (report.state() == pb::CONFIGURATION_ADMISSION_STATE_UNSPECIFIED) return absl::InvalidArgumentError("admission state is required");
  if (!pb::ConfigurationAdmissionState_IsValid(report.state())) return absl::InvalidArgumentError("invalid admission state");
  auto& status = *record.mutable_sandbox()->mutable_status();
  const auto& provisioning = status.provisioning();
  if (provisioning.has_timeout_time() || (provisioning.has_deadline() && at.now >= to_millis(provisioning.deadline()))) {
    return absl::FailedPreconditionError("provisioning deadline expired; explicitly start the sandbox after cleanup");
  }
  if (report.state() == pb::CONFIGURATION_ADMISSION_STATE_PENDING) {
    return register_instance(record, report.instance_id(), request.expected_instance_id(), at.now);
  }
  auto& admission = *status.mutable_configuration_admission();
  if (admission.instance_id() != report.instance_id()) return absl::AbortedError("supervisor configuration instance has changed");
  const bool accepted = report.state() == pb::CONFIGURATION_ADMISSION_STATE_ACCEPTED;
  if (accepted && (!matches(report, current) || !current.configuration_admitted())) {
    return absl::AbortedError("configuration changed or is not admitted; fetch and validate again");
  }
  if (!accepted && !matches(report, current)) return absl::AbortedError("rejected configuration generation has changed");
  const std::string diagnostic = accepted                           ? ""
                                 : current.configuration_admitted() ? diagnostics::kActivation
                                                                    : current.configuration_error();
  const auto before = admission.SerializeAsString();
  admission = report;
  admission.set_error(diagnostic);
  if (admission.SerializeAsString() == before) return false;
  if (!accepted) {
    reject(record, diagnostic, at.now);
    return true;
  }
  status.set_configuration_activated(true);
  set_condition(status, "ConfigurationReady", true, "ConfigurationAccepted", "The supervisor runs the accepted configuration", at.now);
  settle_readiness(record, at);
  return true;
}

void note_configuration_change(records::SandboxRecord& record, const std::string& change_id, Millis now) {
  auto& provisioning = *record.mutable_sandbox()->mutable_status()->mutable_provisioning();
  if (!provisioning.has_deadline() || now >= to_millis(provisioning.deadline())) return;
  provisioning.set_configuration_change_id(change_id);
  set_millis(provisioning.mutable_configuration_change_time(), now);
  provisioning.clear_first_rejection_time();
  set_millis(provisioning.mutable_deadline(), std::max(to_millis(provisioning.deadline()), now + kRepairWindow));
}

}  // namespace openshell::gateway
