#include "cli/sandbox_document.hpp"

#include <absl/strings/ascii.h>

#include <boost/json.hpp>
#include <map>

#include "cli/document.hpp"
#include "openshell.pb.h"
#include "policy/serialize.hpp"

namespace openshell::cli {
namespace {

namespace json = boost::json;

/// ENDPOINT_RESULT_TLS_FAILED without its prefix -> TlsFailed.
std::string camel(std::string_view name, std::string_view prefix) {
  std::string out;
  bool upper = true;
  for (const char c : name.substr(name.starts_with(prefix) ? prefix.size() : 0)) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper ? c : absl::ascii_tolower(static_cast<unsigned char>(c));
    upper = false;
  }
  return out;
}

json::object labels_document(const google::protobuf::Map<std::string, std::string>& labels) {
  json::object out;
  for (const auto& [key, value] : std::map<std::string, std::string>(labels.begin(), labels.end())) out[key] = value;
  return out;
}

json::array conditions_document(const v1::SandboxStatus& status) {
  json::array out;
  for (const auto& condition : status.conditions()) {
    out.push_back({{"type", condition.type()},
                   {"status", condition.status()},
                   {"reason", condition.reason()},
                   {"message", condition.message()},
                   {"last_transition_time", rfc3339(condition.transition_time())}});
  }
  return out;
}

json::array endpoints_document(const v1::SandboxStatus& status) {
  json::array out;
  for (const auto& endpoint : status.endpoint_statuses()) {
    json::array ports;
    for (const auto port : endpoint.ports()) ports.push_back(port);
    out.push_back({{"endpoint_id", endpoint.endpoint_id()},
                   {"host", endpoint.host()},
                   {"ports", ports},
                   {"path", endpoint.path()},
                   {"last_result", camel(v1::EndpointResult_Name(endpoint.last_result()), "ENDPOINT_RESULT_")},
                   {"last_reported_at", rfc3339(endpoint.last_reported_time())}});
  }
  return out;
}

std::string admission_state(v1::ConfigurationAdmissionState state) {
  switch (state) {
    case v1::CONFIGURATION_ADMISSION_STATE_PENDING:
      return "pending";
    case v1::CONFIGURATION_ADMISSION_STATE_ACCEPTED:
      return "accepted";
    case v1::CONFIGURATION_ADMISSION_STATE_REJECTED:
      return "rejected";
    default:
      return "unknown";
  }
}

json::value admission_document(const v1::SandboxStatus& status) {
  if (!status.has_configuration_admission()) return nullptr;
  const auto& admission = status.configuration_admission();
  return {{"state", admission_state(admission.state())},    {"error", admission.error()},
          {"policy_version", admission.policy_version()},   {"policy_hash", admission.policy_hash()},
          {"config_revision", admission.config_revision()}, {"provider_env_revision", admission.provider_env_revision()}};
}

json::value provisioning_document(const v1::SandboxStatus& status) {
  if (!status.has_provisioning()) return nullptr;
  const auto& provisioning = status.provisioning();
  const bool ready = status.phase() == v1::SANDBOX_PHASE_READY;
  const auto time = [](bool there, const google::protobuf::Timestamp& at) {
    return there ? json::value(rfc3339(at)) : json::value(nullptr);
  };
  return {{"attempt_id", provisioning.attempt_id()},
          {"configuration_change_id", provisioning.configuration_change_id()},
          {"phase", ready                                     ? "ready"
                    : provisioning.has_admission_start_time() ? "admission"
                                                              : "preparation"},
          {"deadline", time(provisioning.has_deadline(), provisioning.deadline())},
          {"timeout_time", time(provisioning.has_timeout_time(), provisioning.timeout_time())},
          {"cleanup_completed_time", time(provisioning.has_cleanup_completed_time(), provisioning.cleanup_completed_time())},
          {"cleanup_error", provisioning.cleanup_error()},
          {"cleanup_retry_time", time(provisioning.has_cleanup_retry_time(), provisioning.cleanup_retry_time())}};
}

}  // namespace

std::string phase_name(int phase) {
  if (!v1::SandboxPhase_IsValid(phase)) return "Unknown";
  return camel(v1::SandboxPhase_Name(static_cast<v1::SandboxPhase>(phase)), "SANDBOX_PHASE_");
}

json::object sandbox_document(const v1::Sandbox& sandbox) {
  const auto& meta = sandbox.metadata();
  const auto& status = sandbox.status();
  json::object out{{"id", meta.id()},
                   {"name", meta.name()},
                   {"workspace", meta.workspace()},
                   {"labels", labels_document(meta.labels())},
                   {"annotations", labels_document(meta.annotations())},
                   {"resource_version", meta.resource_version()},
                   {"created_at", show_time(meta.created_time())},
                   {"host_key_fingerprint", sandbox.host_key_fingerprint()},
                   {"phase", phase_name(status.phase())},
                   {"current_policy_version", status.current_policy_version()},
                   {"conditions", conditions_document(status)},
                   {"endpoint_statuses", endpoints_document(status)},
                   {"configuration_admission", admission_document(status)},
                   {"provisioning", provisioning_document(status)}};
  out["exit_code"] = status.has_exit_code() ? json::value(status.exit_code()) : json::value(nullptr);
  out["created_from_workload_template"] =
      sandbox.has_created_from_workload_template()
          ? json::value{{"name", sandbox.created_from_workload_template().name()},
                        {"resource_version", sandbox.created_from_workload_template().resource_version()}}
          : json::value(nullptr);
  return out;
}

json::value policy_document(const sandbox::v1::SandboxPolicy& policy) {
  const auto text = policy::to_json(policy);
  if (!text.ok()) return nullptr;
  boost::system::error_code error;
  return json::parse(*text, error);
}

std::string not_ready_reason(const v1::Sandbox& sandbox) {
  for (const auto& condition : sandbox.status().conditions()) {
    if (condition.type() == "Ready" && absl::AsciiStrToLower(condition.status()) == "false")
      return condition.reason() + ": " + condition.message();
  }
  return "";
}

}  // namespace openshell::cli
