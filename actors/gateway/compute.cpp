#include "actors/gateway/compute.hpp"

#include <google/protobuf/util/json_util.h>

#include <array>

#include "drivers/retention.hpp"
#include "observability/fault_point.hpp"
#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

using google::protobuf::Struct;

std::string take_quantity(const Struct& resources, const char* group, const char* key) {
  const auto outer = resources.fields().find(group);
  if (outer == resources.fields().end() || !outer->second.has_struct_value()) return {};
  const auto inner = outer->second.struct_value().fields().find(key);
  return inner != outer->second.struct_value().fields().end() && inner->second.kind_case() == google::protobuf::Value::kStringValue
             ? inner->second.string_value()
             : std::string{};
}

std::string to_json(const google::protobuf::Message& message) {
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(message, &text);
  return text;
}

/// What the typed quantities do not carry.
std::string rest_of(Struct resources) {
  for (const char* group : {"limits", "requests"}) {
    const auto it = resources.mutable_fields()->find(group);
    if (it == resources.fields().end() || !it->second.has_struct_value()) continue;
    auto& fields = *it->second.mutable_struct_value()->mutable_fields();
    for (const char* key : {"cpu", "memory"}) {
      const auto value = fields.find(key);
      if (value != fields.end() && value->second.kind_case() == google::protobuf::Value::kStringValue) fields.erase(value);
    }
    if (fields.empty()) resources.mutable_fields()->erase(group);
  }
  return resources.fields().empty() ? std::string{} : to_json(resources);
}

}  // namespace

absl::StatusOr<drivers::SandboxSpec> to_driver_spec(const internal::records::v1::SandboxRecord& record) {
  const auto& sandbox = record.sandbox();
  const auto& from = sandbox.spec();
  const auto& layout = from.template_();
  drivers::SandboxSpec spec;
  spec.id = SandboxId{sandbox.metadata().id()};
  spec.name = sandbox.metadata().name();
  spec.workspace = sandbox.metadata().workspace();
  spec.image = layout.image();
  spec.log_level = from.log_level();
  spec.command.assign(from.command().begin(), from.command().end());
  spec.tty = from.tty();
  spec.await_main_process_attachment = record.await_main_process_attachment();
  spec.environment.insert(from.environment().begin(), from.environment().end());
  spec.template_environment.insert(layout.environment().begin(), layout.environment().end());
  spec.labels.insert(layout.labels().begin(), layout.labels().end());
  const auto& annotations = sandbox.metadata().annotations();
  const auto retention = annotations.find(std::string{drivers::kRetentionLabel});
  spec.labels.erase(std::string{drivers::kRetentionLabel});  // says what the gateway does, not what a template asks for
  if (retention != annotations.end()) spec.labels[retention->first] = retention->second;
  spec.resources.cpu_limit = take_quantity(layout.resources(), "limits", "cpu");
  spec.resources.cpu_request = take_quantity(layout.resources(), "requests", "cpu");
  spec.resources.memory_limit = take_quantity(layout.resources(), "limits", "memory");
  spec.resources.memory_request = take_quantity(layout.resources(), "requests", "memory");
  spec.resources_raw = rest_of(layout.resources());
  spec.gpu = from.resource_requirements().has_gpu();
  if (from.resource_requirements().gpu().has_count()) spec.gpu_count = from.resource_requirements().gpu().count();
  spec.identity.run_as_user = from.policy().process().run_as_user();
  spec.identity.run_as_group = from.policy().process().run_as_group();
  const auto options = layout.driver_config().fields().find(record.driver());
  if (options != layout.driver_config().fields().end()) {
    if (!options->second.has_struct_value()) {
      return absl::InvalidArgumentError(cat("template.driver_config.", record.driver(), " must be an object"));
    }
    if (!options->second.struct_value().fields().empty()) spec.driver_config_json = to_json(options->second.struct_value());
  }
  return spec;
}

namespace {

absl::StatusOr<ComputeAnswer> run_now(drivers::ComputeDriver& driver, const ComputeCall& call) {
  ComputeAnswer answer;
  switch (call.kind) {
    case ComputeCall::Kind::validate:
      if (auto status = driver.validate(call.spec); !status.ok()) return status;
      return answer;
    case ComputeCall::Kind::create:
    case ComputeCall::Kind::start: {
      auto identity = call.kind == ComputeCall::Kind::create ? driver.create(call.spec, call.launch)
                                                             : driver.start(call.spec, call.launch, call.runtime_identity);
      if (!identity.ok()) return identity.status();
      answer.runtime_identity = std::move(*identity);
      return answer;
    }
    case ComputeCall::Kind::stop:
      if (auto status = driver.stop(call.id); !status.ok()) return status;
      return answer;
    case ComputeCall::Kind::remove: {
      auto removed = driver.remove(call.id);
      if (!removed.ok()) return removed.status();
      answer.removed = *removed;
      return answer;
    }
    case ComputeCall::Kind::get: {
      auto observed = driver.get(call.id);
      if (!observed.ok()) return observed.status();
      if (observed->id != call.id) {
        return absl::InternalError(
            cat("compute driver returned sandbox '", observed->id.str(), "' for requested id '", call.id.str(), "'"));
      }
      answer.observed = std::move(*observed);
      return answer;
    }
  }
  return absl::InternalError("unknown driver call");
}

std::string_view name_of(ComputeCall::Kind kind) {
  constexpr std::array<std::string_view, 6> kNames{"validate", "create", "start", "stop", "remove", "get"};
  return kNames.at(static_cast<std::size_t>(kind));
}

}  // namespace

absl::StatusOr<ComputeAnswer> run(drivers::ComputeDriver& driver, const ComputeCall& call) {
  fault::point("driver", name_of(call.kind), "begin");
  auto answer = run_now(driver, call);
  fault::point("driver", name_of(call.kind), "end");
  return answer;
}

}  // namespace openshell::gateway
