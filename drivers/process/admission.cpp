#include "drivers/process/admission.hpp"

#include <boost/json.hpp>
#include <charconv>

#include "drivers/process/sandbox_files.hpp"

namespace openshell::drivers::process {
namespace {

// `sandbox` or a number; names of the host's accounts mean nothing here.
absl::StatusOr<std::uint32_t> identity(const std::string& wish, std::uint32_t ours, const char* kind) {
  if (wish.empty() || wish == "sandbox") return ours;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(wish.data(), wish.data() + wish.size(), number);
  if (error != std::errc{} || end != wish.data() + wish.size()) {
    return absl::InvalidArgumentError(std::string("process ") + kind + " \"" + wish + "\" is neither 'sandbox' nor a number");
  }
  if (number == 0 || number == 4'294'967'295U)
    return absl::InvalidArgumentError(std::string("process ") + kind + " must be in range [1, 4294967294]");
  return number;
}

absl::StatusOr<Limits> limits_of(const ProcessDriverOptions& options, const CgroupRoot& cgroups, const ResourceQuantities& wanted) {
  if (!wanted.cpu_request.empty() || !wanted.memory_request.empty()) {
    return absl::FailedPreconditionError("process sandboxes do not support resource requests; use limits");
  }
  Limits limits;
  limits.processes = options.sandbox_pids_limit;
  if (!wanted.cpu_limit.empty()) {
    auto cpu = parse_cpu(wanted.cpu_limit);
    if (!cpu.ok()) return cpu.status();
    limits.cpu_milli = *cpu;
  }
  if (!wanted.memory_limit.empty()) {
    auto memory = parse_memory(wanted.memory_limit);
    if (!memory.ok()) return memory.status();
    limits.memory_bytes = *memory;
  } else if (cgroups.limits_memory()) {
    auto memory = parse_share(options.default_memory_limit, host_memory());
    if (!memory.ok()) return memory.status();
    limits.memory_bytes = *memory;
  }
  if (options.require_limits &&
      ((limits.cpu_milli && !cgroups.limits_cpu()) || (limits.memory_bytes && !cgroups.limits_memory()) || !cgroups.limits_processes())) {
    return absl::FailedPreconditionError("resource limits can not be enforced on this host (no writable cgroup) and require_limits is set");
  }
  return limits;
}

absl::Status check_driver_config(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  boost::system::error_code error;
  const auto value = boost::json::parse(text, error);
  if (error || !value.is_object()) return absl::InvalidArgumentError("template.driver_config.process must be an object");
  for (const auto& [key, item] : value.as_object()) {
    if (key == "mounts") return absl::FailedPreconditionError("process driver_config.mounts is not part of this build yet");
    return absl::InvalidArgumentError("invalid process driver_config: unknown key \"" + std::string(key) + "\"");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Admitted> admit(const ProcessDriverOptions& options, const CgroupRoot& cgroups, const SandboxSpec& spec) {
  if (!is_valid_id(spec.id.str()))
    return absl::InvalidArgumentError("sandbox id \"" + spec.id.str() + "\" is not fit for the process driver");
  if (auto status = check_driver_config(spec.driver_config_json); !status.ok()) return status;
  if (!spec.resources_raw.empty()) return absl::FailedPreconditionError("process compute driver does not support template.platform_config");
  if (spec.gpu_count && *spec.gpu_count == 0) return absl::InvalidArgumentError("gpu count must be greater than 0");
  if (spec.gpu) return absl::FailedPreconditionError("process sandboxes have no GPU on this host");
  if (!spec.command.empty() && spec.command.front().empty())
    return absl::InvalidArgumentError("the first word of the main command is empty");
  if (!options.allow_image_mismatch && !spec.image.empty()) {
    return absl::FailedPreconditionError("process image '" + spec.image + "' is not present locally and image pulling is disabled");
  }
  const auto uid = identity(spec.identity.run_as_user, options.sandbox_uid, "user");
  if (!uid.ok()) return uid.status();
  const auto gid = identity(spec.identity.run_as_group, options.sandbox_gid, "group");
  if (!gid.ok()) return gid.status();
  auto limits = limits_of(options, cgroups, spec.resources);
  if (!limits.ok()) return limits.status();
  return Admitted{*uid, *gid, *limits};
}

}  // namespace openshell::drivers::process
