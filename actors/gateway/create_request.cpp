#include "actors/gateway/create_request.hpp"

#include "actors/gateway/workload_template.hpp"

#include <array>

#include "api/errors.hpp"
#include "api/service_endpoint.hpp"
#include "observability/text.hpp"
#include "policy/baseline.hpp"
#include "policy/validate.hpp"
#include "storage/labels.hpp"

namespace openshell::gateway {
namespace {

using api::invalid_field;
using StringMap = google::protobuf::Map<std::string, std::string>;

absl::Status too_long(std::string_view field, std::size_t have, std::size_t max) {
  return invalid_field(field, cat(field, " exceeds maximum length (", have, " > ", max, ")"));
}

bool alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

absl::Status check_map(std::string_view field, const StringMap& map) {
  if (map.size() > kMaxMapEntries)
    return invalid_field(field, cat(field, " exceeds maximum entries (", map.size(), " > ", kMaxMapEntries, ")"));
  for (const auto& [key, value] : map) {
    if (key.size() > kMaxMapKey)
      return invalid_field(field, cat(field, " key exceeds maximum length (", key.size(), " > ", kMaxMapKey, ")"));
    if (value.size() > kMaxMapValue)
      return invalid_field(field, cat(field, " value exceeds maximum length (", value.size(), " > ", kMaxMapValue, ")"));
  }
  return absl::OkStatus();
}

absl::Status check_environment(std::string_view field, const StringMap& map) {
  if (auto status = check_map(field, map); !status.ok()) return status;
  std::size_t total = 0;
  for (const auto& [key, value] : map) {
    bool good = !key.empty() && !(key[0] >= '0' && key[0] <= '9');
    for (char c : key) good = good && (alnum(c) || c == '_');
    if (!good) return invalid_field(field, cat(field, " keys must match ^[A-Za-z_][A-Za-z0-9_]*$; got '", key, "'"));
    if (key.starts_with("OPENSHELL_"))
      return invalid_field(field, cat(field, " keys starting with OPENSHELL_ are reserved; got '", key, "'"));
    if (value.find('\0') != std::string::npos) return invalid_field(field, cat(field, " contains null bytes"));
    total += key.size() + value.size();
  }
  if (total > kMaxEnvironmentBytes) return invalid_field(field, cat(field, " total size exceeds ", kMaxEnvironmentBytes, " byte limit"));
  return absl::OkStatus();
}

absl::Status check_command(const pb::SandboxSpec& spec) {
  if (spec.command_size() == 0) return absl::OkStatus();
  if (spec.command(0).empty()) return invalid_field("spec.command", "spec.command[0] must not be empty");
  if (spec.command_size() > kMaxCommandEntries)
    return invalid_field("spec.command", cat("spec.command exceeds ", kMaxCommandEntries, " argument limit"));
  std::size_t total = 0;
  for (int i = 0; i < spec.command_size(); ++i) {
    const auto& entry = spec.command(i);
    if (entry.size() > kMaxCommandEntry)
      return invalid_field("spec.command", cat("spec.command[", i, "] exceeds ", kMaxCommandEntry, " byte limit"));
    if (entry.find('\0') != std::string::npos) return invalid_field("spec.command", cat("spec.command[", i, "] contains null bytes"));
    total += entry.size();
  }
  if (total > kMaxCommandBytes)
    return invalid_field("spec.command", cat("spec.command total size exceeds ", kMaxCommandBytes, " byte limit"));
  return absl::OkStatus();
}

absl::Status check_template(const pb::SandboxTemplate& from) {
  for (const auto& [field, text] : {std::pair<const char*, const std::string*>{"spec.template.image", &from.image()},
                                    {"spec.template.runtime_class_name", &from.runtime_class_name()},
                                    {"spec.template.agent_socket", &from.agent_socket()}}) {
    if (text->size() > kMaxTemplateString) return too_long(field, text->size(), kMaxTemplateString);
  }
  if (auto status = check_map("spec.template.labels", from.labels()); !status.ok()) return status;
  if (auto status = check_map("spec.template.annotations", from.annotations()); !status.ok()) return status;
  if (auto status = check_environment("spec.template.environment", from.environment()); !status.ok()) return status;
  if (from.resources().ByteSizeLong() > kMaxTemplateStruct)
    return too_long("spec.template.resources", from.resources().ByteSizeLong(), kMaxTemplateStruct);
  if (from.driver_config().ByteSizeLong() > kMaxTemplateStruct) {
    return too_long("spec.template.driver_config", from.driver_config().ByteSizeLong(), kMaxTemplateStruct);
  }
  return absl::OkStatus();
}

absl::Status check_spec(const pb::SandboxSpec& spec) {
  if (static_cast<std::size_t>(spec.providers_size()) > kMaxProviders) {
    return invalid_field("spec.providers", cat("providers list exceeds maximum (", spec.providers_size(), " > ", kMaxProviders, ")"));
  }
  if (spec.log_level().size() > kMaxLogLevel) return too_long("spec.log_level", spec.log_level().size(), kMaxLogLevel);
  if (auto status = check_environment("spec.environment", spec.environment()); !status.ok()) return status;
  if (auto status = check_template(spec.template_()); !status.ok()) return status;
  const auto& gpu = spec.resource_requirements().gpu();
  if (spec.resource_requirements().has_gpu() && gpu.has_count() && gpu.count() == 0) {
    return invalid_field("spec.resource_requirements.gpu.count", "gpu count must be greater than 0");
  }
  if (auto status = check_command(spec); !status.ok()) return status;
  if (!pb::SandboxRestartPolicy_IsValid(spec.restart_policy()))
    return invalid_field("spec.restart_policy", "spec.restart_policy is not a known restart policy");
  return absl::OkStatus();
}

constexpr std::array kOwnedPrefixes = {"internal.openshell.ai/"};

}  // namespace

absl::Status check_label(std::string_view field, std::string_view text, std::size_t max) {
  if (text.size() > max) return too_long(field, text.size(), max);
  if (text.empty()) return absl::OkStatus();
  for (char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) {
      return invalid_field(field, cat(field, " must contain only lowercase alphanumeric characters or hyphens"));
    }
  }
  if (text.front() == '-' || text.back() == '-') return invalid_field(field, cat(field, " must not start or end with a hyphen"));
  if (text.find("--") != std::string_view::npos) return invalid_field(field, cat(field, " must not contain consecutive hyphens"));
  return absl::OkStatus();
}

absl::Status check_labels(const StringMap& labels) {
  const auto status = storage::check_labels({labels.begin(), labels.end()});
  return status.ok() ? status : invalid_field("labels", to_std(status.message()));
}

absl::Status check_annotations(const StringMap& annotations) {
  const auto status = storage::check_annotations({annotations.begin(), annotations.end()});
  return status.ok() ? status : invalid_field("annotations", to_std(status.message()));
}

void drop_owned_annotations(StringMap& annotations) {
  for (auto it = annotations.begin(); it != annotations.end();) {
    bool owned = false;
    for (const auto* prefix : kOwnedPrefixes) owned = owned || it->first.starts_with(prefix);
    it = owned ? annotations.erase(it) : std::next(it);
  }
}

absl::Status admit_policy(openshell::sandbox::v1::SandboxPolicy& policy, bool strip_provider_rules) {
  if (policy.ByteSizeLong() > kMaxPolicyBytes) {
    return invalid_field("policy", cat("policy serialized size exceeds maximum (", policy.ByteSizeLong(), " > ", kMaxPolicyBytes, ")"));
  }
  if (strip_provider_rules) policy::strip_provider_rules(policy);
  for (const auto& [key, rule] : policy.network_policies()) {
    if (!key.starts_with(policy::kProviderRulePrefix)) continue;
    return invalid_field(
        "policy", cat("network_policies key '", key,
                      "' uses reserved '_provider_' prefix for provider composition; use 'openshell policy get <sandbox> --base' for a "
                      "round-trippable base policy, or use 'openshell policy get <sandbox> --full' to inspect the effective policy "
                      "including provider entries"));
  }
  if (auto status = policy::admit(policy); !status.ok()) return status;
  if (policy.ByteSizeLong() > kMaxPolicyBytes) {
    return invalid_field("policy", cat("policy serialized size exceeds maximum (", policy.ByteSizeLong(), " > ", kMaxPolicyBytes, ")"));
  }
  return absl::OkStatus();
}

absl::Status check_create(pb::CreateSandboxRequest& request) {
  if (auto status = check_labels(request.labels()); !status.ok()) return status;
  if (auto status = check_annotations(request.annotations()); !status.ok()) return status;
  if (!request.has_spec()) return invalid_field("spec", "spec is required");
  if (auto status = check_label("name", request.name(), kMaxRoutableName); !status.ok()) return status;
  if (auto status = api::check_exposures(request); !status.ok()) return status;
  auto& spec = *request.mutable_spec();
  if (auto status = check_spec(spec); !status.ok()) return status;
  if (spec.has_policy()) {
    if (auto status = admit_policy(*spec.mutable_policy(), false); !status.ok()) return status;
  }
  return absl::OkStatus();
}

records::SandboxRecord new_record(const pb::CreateSandboxRequest& request, const Creation& creation) {
  records::SandboxRecord record;
  auto& sandbox = *record.mutable_sandbox();
  auto& meta = *sandbox.mutable_metadata();
  meta.set_id(creation.sandbox_id);
  meta.set_name(creation.name);
  meta.set_workspace(creation.workspace);
  *meta.mutable_labels() = request.labels();
  *meta.mutable_annotations() = request.annotations();
  drop_owned_annotations(*meta.mutable_annotations());
  set_millis(meta.mutable_created_time(), creation.now);
  auto& spec = *sandbox.mutable_spec();
  spec = request.spec();
  if (spec.command_size() == 0) spec.set_tty(true);  // the login shell, which only the image knows
  if (spec.template_().image().empty() && !creation.default_image.empty()) spec.mutable_template_()->set_image(creation.default_image);
  if (spec.restart_policy() == pb::SANDBOX_RESTART_POLICY_UNSPECIFIED) spec.set_restart_policy(pb::SANDBOX_RESTART_POLICY_NEVER);
  spec.set_provider_attachment_epoch(creation.attachment_epoch);
  if (!request.workload_template().empty()) *sandbox.mutable_created_from_workload_template() = provenance_of(request);
  auto& status = *sandbox.mutable_status();
  status.set_phase(pb::SANDBOX_PHASE_PROVISIONING);
  status.set_configuration_activated(false);
  record.set_driver(creation.driver);
  record.set_await_main_process_attachment(request.await_main_process_attachment());
  return record;
}

std::string pet_name(const std::function<std::uint32_t(std::uint32_t)>& random) {
  static constexpr std::array kFirst = {"amber",  "brave", "calm",  "clever", "dapper", "eager",  "fair",  "gentle",
                                        "happy",  "keen",  "kind",  "lively", "lucky",  "mellow", "merry", "neat",
                                        "nimble", "proud", "quick", "quiet",  "rapid",  "sunny",  "swift", "witty"};
  static constexpr std::array kSecond = {"badger", "beaver", "bison",  "crane", "dolphin", "falcon", "ferret", "finch",
                                         "gecko",  "heron",  "ibex",   "koala", "lemur",   "lynx",   "marten", "otter",
                                         "owl",    "panda",  "puffin", "raven", "robin",   "salmon", "stoat",  "walrus"};
  auto name = cat(kFirst[random(kFirst.size())], "-", kSecond[random(kSecond.size())], "-", 10 + random(90));
  return name.substr(0, kMaxRoutableName);
}

}  // namespace openshell::gateway
