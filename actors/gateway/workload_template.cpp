#include "actors/gateway/workload_template.hpp"

#include <google/protobuf/util/time_util.h>

#include "actors/gateway/create_request.hpp"
#include "api/errors.hpp"
#include "observability/text.hpp"
#include "storage/labels.hpp"

namespace openshell::gateway {
namespace {

using api::invalid_field;

constexpr const char* kVersionAnnotation = "internal.openshell.ai/workload-template-version";

absl::Status check_name(const openshell::v1::SandboxWorkloadTemplate& made) {
  const auto& name = made.metadata().name();
  if (name.empty()) return invalid_field("template.metadata.name", "template.metadata.name is required");
  return check_label("template.metadata.name", name, kMaxName);
}

absl::Status check_service_level(const openshell::v1::SandboxWorkloadTemplateSpec& spec) {
  constexpr std::string_view kField = "template.spec.desired_service_level.startup.ready_within";
  if (!spec.desired_service_level().startup().has_ready_within()) return absl::OkStatus();
  const auto& within = spec.desired_service_level().startup().ready_within();
  const bool valid = within.seconds() >= google::protobuf::util::TimeUtil::kDurationMinSeconds &&
                     within.seconds() <= google::protobuf::util::TimeUtil::kDurationMaxSeconds && within.nanos() > -1'000'000'000 &&
                     within.nanos() < 1'000'000'000 &&
                     (within.seconds() == 0 || within.nanos() == 0 || (within.seconds() < 0) == (within.nanos() < 0));
  if (!valid) return invalid_field(kField, cat(kField, " is not a valid duration"));
  if (within.seconds() < 0 || within.nanos() < 0 || (within.seconds() == 0 && within.nanos() == 0))
    return invalid_field(kField, cat(kField, " must be greater than zero"));
  return absl::OkStatus();
}

}  // namespace

absl::Status check_workload_template(const openshell::v1::CreateSandboxTemplateRequest& request, std::string_view workspace) {
  if (!request.has_template_()) return invalid_field("template", "template is required");
  const auto& made = request.template_();
  if (!made.metadata().workspace().empty() && made.metadata().workspace() != workspace)
    return invalid_field("template.metadata.workspace", "template.metadata.workspace must match request workspace");
  if (auto status = check_name(made); !status.ok()) return status;
  if (auto status = check_labels(made.metadata().labels()); !status.ok()) return status;
  if (auto status = check_annotations(made.metadata().annotations()); !status.ok()) return status;
  if (!made.has_spec()) return invalid_field("template.spec", "sandbox template spec is required");
  if (!made.spec().has_workload()) return invalid_field("template.spec.workload", "sandbox template workload is required");
  // What it would make has to pass the checks that every sandbox passes.
  openshell::v1::CreateSandboxRequest produced;
  expand_template(made, produced);
  if (auto status = check_create(produced); !status.ok()) return status;
  return check_service_level(made.spec());
}

storage::Object to_row(const openshell::v1::SandboxWorkloadTemplate& checked, const std::string& workspace, const std::string& id) {
  openshell::v1::SandboxWorkloadTemplate stored = checked;
  auto& meta = *stored.mutable_metadata();
  drop_owned_annotations(*meta.mutable_annotations());
  storage::Object row;
  row.type = kWorkloadTemplateType;
  row.id = id;
  row.workspace = workspace;
  row.name = meta.name();
  row.labels = {meta.labels().begin(), meta.labels().end()};
  row.payload = stored.SerializeAsString();
  return row;
}

absl::StatusOr<openshell::v1::SandboxWorkloadTemplate> template_from_row(const storage::Object& row) {
  openshell::v1::SandboxWorkloadTemplate out;
  if (!out.ParseFromString(row.payload)) return absl::InternalError(cat("the stored sandbox template ", row.id, " can not be read"));
  auto& meta = *out.mutable_metadata();
  meta.set_id(row.id);
  meta.set_name(row.name.value_or(""));
  meta.set_workspace(row.workspace);
  meta.set_resource_version(row.resource_version);
  set_millis(meta.mutable_created_time(), row.created_at_ms);
  return out;
}

absl::Status check_template_use(const openshell::v1::CreateSandboxRequest& request) {
  if (auto status = check_label("workload_template", request.workload_template(), kMaxName); !status.ok()) return status;
  const auto& spec = request.spec();
  const auto refused = [](const char* field) {
    return invalid_field(cat("spec.", field), cat("spec.", field, " cannot be set when workload_template is set"));
  };
  if (!spec.log_level().empty()) return refused("log_level");
  if (!spec.environment().empty()) return refused("environment");
  if (spec.has_template_()) return refused("template");
  if (spec.has_resource_requirements()) return refused("resource_requirements");
  return absl::OkStatus();
}

void expand_template(const openshell::v1::SandboxWorkloadTemplate& from, openshell::v1::CreateSandboxRequest& request) {
  drop_owned_annotations(*request.mutable_annotations());
  (*request.mutable_annotations())[kVersionAnnotation] = cat(from.metadata().resource_version());
  const auto& workload = from.spec().workload();
  auto& spec = *request.mutable_spec();
  *spec.mutable_environment() = workload.environment();
  auto& layout = *spec.mutable_template_();
  layout.set_image(workload.image());
  const auto& resources = workload.resources();
  if (!resources.cpu().empty() || !resources.memory().empty()) {
    auto& limits = *(*layout.mutable_resources()->mutable_fields())["limits"].mutable_struct_value()->mutable_fields();
    if (!resources.cpu().empty()) limits["cpu"].set_string_value(resources.cpu());
    if (!resources.memory().empty()) limits["memory"].set_string_value(resources.memory());
  }
  if (resources.has_gpu()) *spec.mutable_resource_requirements()->mutable_gpu() = resources.gpu();
  if (from.spec().has_driver_config()) *layout.mutable_driver_config() = from.spec().driver_config();
}

openshell::v1::SandboxWorkloadTemplateProvenance provenance_of(const openshell::v1::CreateSandboxRequest& expanded) {
  openshell::v1::SandboxWorkloadTemplateProvenance out;
  out.set_name(expanded.workload_template());
  const auto version = expanded.annotations().find(kVersionAnnotation);
  if (version != expanded.annotations().end()) out.set_resource_version(version->second);
  return out;
}

}  // namespace openshell::gateway
