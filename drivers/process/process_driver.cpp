#include "drivers/process/process_driver.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "drivers/process/driver_state.hpp"
#include "drivers/process/launch_modes.hpp"
#include "drivers/process/workspace_image.hpp"
#include "isolation/boundary/digest.hpp"

namespace openshell::drivers::process {

Capabilities ProcessDriver::capabilities() const {
  Capabilities all;
  all.driver_name = "process";
  all.driver_version = context_.options.driver_version;
  all.gateway_manages_lifecycle = true;
  all.resources.cpu_limit = context_.cgroups.limits_cpu();
  all.resources.memory_limit = context_.cgroups.limits_memory();
  all.notes = notes_;
  return all;
}

absl::Status ProcessDriver::validate(const SandboxSpec& spec) {
  if (!unusable_.ok()) return unusable_;
  return admit(context_.options, context_.cgroups, spec).status();
}

ProcessDriver::SandboxPtr ProcessDriver::find(const std::string& id) const {
  const std::lock_guard lock{mutex_};
  const auto found = sandboxes_.find(id);
  return found == sandboxes_.end() ? nullptr : found->second;
}

Observation ProcessDriver::observe(const Sandbox& sandbox) const {
  Observation seen;
  seen.id = SandboxId{sandbox.state.id()};
  seen.name = sandbox.state.name();
  seen.workspace = sandbox.state.workspace();
  seen.instance_id = "process-" + sandbox.state.id();
  seen.generation = GenerationId{sandbox.generation};
  seen.runtime_identity = sandbox.state.runtime_identity();
  seen.deleting = sandbox.deleting;
  const char* ready = sandbox.phase == Phase::kRunning ? "True" : "False";
  seen.conditions.push_back({"Ready", ready, sandbox.reason, sandbox.message, sandbox.transition_time});
  seen.conditions.push_back(
      {"WorkloadIdentity", "True", "Resolved", std::to_string(sandbox.state.uid()) + ":" + std::to_string(sandbox.state.gid()), {}});
  if (!sandbox.evidence.empty()) seen.conditions.push_back({"OuterFence", "True", "Verified", sandbox.evidence, {}});
  return seen;
}

absl::StatusOr<Observation> ProcessDriver::get(const SandboxId& id) {
  const std::lock_guard lock{mutex_};
  const auto found = sandboxes_.find(id.str());
  if (found == sandboxes_.end()) return absl::NotFoundError("sandbox " + id.str() + " is not known to the process driver");
  return observe(*found->second);
}

absl::StatusOr<std::vector<Observation>> ProcessDriver::list() {
  const std::lock_guard lock{mutex_};
  std::vector<Observation> all;
  for (const auto& [id, sandbox] : sandboxes_) all.push_back(observe(*sandbox));
  return all;
}

absl::StatusOr<std::string> ProcessDriver::create(const SandboxSpec& spec, const LaunchAuthentication& launch) {
  if (!unusable_.ok()) return unusable_;
  const auto admitted = admit(context_.options, context_.cgroups, spec);
  if (!admitted.ok()) return admitted.status();
  auto sandbox = enlist(spec, *admitted);
  if (!sandbox.ok()) return sandbox.status();
  if (auto status = begin(*sandbox, spec, launch, *admitted); !status.ok()) return status;
  const std::lock_guard lock{mutex_};
  return (*sandbox)->state.runtime_identity();
}

absl::StatusOr<std::string> ProcessDriver::start(const SandboxSpec& spec, const LaunchAuthentication& launch,
                                                 std::string_view expected_runtime_identity) {
  if (!unusable_.ok()) return unusable_;
  const auto admitted = admit(context_.options, context_.cgroups, spec);
  if (!admitted.ok()) return admitted.status();
  const SandboxPtr sandbox = find(spec.id.str());
  if (sandbox == nullptr) return absl::NotFoundError("sandbox " + spec.id.str() + " is not known to the process driver");
  {
    const std::lock_guard lock{mutex_};
    if (!expected_runtime_identity.empty() && sandbox->state.runtime_identity() != std::string(expected_runtime_identity)) {
      return absl::FailedPreconditionError("sandbox " + spec.id.str() + " has another runtime identity than the record");
    }
    if (sandbox->phase == Phase::kRunning || sandbox->phase == Phase::kStarting) return sandbox->state.runtime_identity();
  }
  if (auto status = begin(sandbox, spec, launch, *admitted); !status.ok() && !absl::IsAlreadyExists(status)) return status;
  const std::lock_guard lock{mutex_};
  return sandbox->state.runtime_identity();
}

absl::Status ProcessDriver::stop(const SandboxId& id) {
  const SandboxPtr sandbox = find(id.str());
  if (sandbox == nullptr) return absl::OkStatus();
  cancel_launch(sandbox);
  const std::lock_guard operation{sandbox->operation};
  const auto grace = std::chrono::seconds{context_.options.stop_timeout_secs};
  if (auto status = end_generation(context_, id.str(), sandbox->running, grace); !status.ok()) return status;
  if (auto status = context_.files.write_driver_file(id.str(), "stopped", ""); !status.ok()) return status;
  turn(sandbox, Phase::kStopped, kReasonContainerStopped, "Process sandbox was stopped");
  return absl::OkStatus();
}

absl::StatusOr<bool> ProcessDriver::remove(const SandboxId& id) {
  if (!is_valid_id(id.str())) return absl::InvalidArgumentError("sandbox_id or sandbox_name is required");
  const SandboxPtr sandbox = find(id.str());
  if (sandbox == nullptr) return false;
  {
    const std::lock_guard lock{mutex_};
    sandbox->deleting = true;
  }
  changed(id.str());
  cancel_launch(sandbox);
  const std::lock_guard operation{sandbox->operation};
  const auto grace = std::chrono::seconds{context_.options.stop_timeout_secs};
  if (auto status = end_generation(context_, id.str(), sandbox->running, grace); !status.ok()) return status;
  const auto removed = context_.files.remove_state(id.str());
  if (!removed.ok()) return removed.status();
  {
    const std::lock_guard lock{mutex_};
    if (sandbox->state.has_slot()) slots_.release(sandbox->state.slot(), id.str());
    sandboxes_.erase(id.str());
  }
  changed(id.str());
  return true;
}

namespace {

std::string read_text(const char* path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string own_directory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

// Fills in what lies beside the gateway's own program.
absl::Status find_programs(ProcessDriverOptions& options) {
  const std::string here = own_directory();
  if (options.supervisor_path.empty()) options.supervisor_path = here + "/openshell-supervisor";
  if (options.monitor_path.empty()) options.monitor_path = here + "/openshell-sandbox-monitor";
  if (options.bundle_dir.empty()) options.bundle_dir = here + "/../bundle";
  std::error_code error;
  if (const auto real = std::filesystem::canonical(options.bundle_dir, error); !error) options.bundle_dir = real.string();
  if (access(options.monitor_path.c_str(), X_OK) != 0)
    return absl::FailedPreconditionError("the process driver needs " + options.monitor_path + ", which can not be executed");
  if (!options.init_argv.empty()) return absl::OkStatus();
  // With a loader and libraries of its own nothing of the root that it runs in is used.
  if (access((options.bundle_dir + "/ld.so").c_str(), F_OK) == 0)
    options.init_argv = {"/.openshell/bin/ld.so", "--library-path", "/.openshell/bin/lib"};
  options.init_argv.emplace_back("/.openshell/bin/openshell-sandbox");
  options.init_argv.insert(options.init_argv.end(), {"--bootstrap", "/.openshell/sandbox/bootstrap.json"});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::uint64_t>> workspace_limit(const std::string& text, bool as_root) {
  const std::string key = "workspace_size_limit: ";
  if (!text.empty() && text.back() == '%') return absl::InvalidArgumentError(key + "a share has no meaning for a disk; give a quantity");
  const auto bytes = parse_share(text, 0);
  if (!bytes.ok()) return absl::InvalidArgumentError(key + std::string(bytes.status().message()));
  if (!*bytes) return *bytes;
  if (!as_root) return absl::FailedPreconditionError(key + "needs root, which alone may mount a file system");
  if (**bytes < kMinWorkspaceBytes) return absl::InvalidArgumentError(key + "at least 8Mi");
  if (auto status = check_workspace_maker(); !status.ok()) return status;
  return *bytes;
}

absl::StatusOr<std::optional<std::uint64_t>> memory_share(const char* key, const std::string& text) {
  auto size = parse_share(text, host_memory());
  if (!size.ok()) return absl::InvalidArgumentError(std::string(key) + ": " + std::string(size.status().message()));
  return size;
}

// One driver per state directory.
absl::StatusOr<Descriptor> lock_state(const std::string& state_dir) {
  Descriptor lock{open((state_dir + "/driver.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!lock) return system_error("opening " + state_dir + "/driver.lock");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return absl::FailedPreconditionError("another gateway uses " + state_dir);
  return lock;
}

Parties probe_parties(const DriverContext& context) {
  const Owner own{geteuid(), getegid()};
  const std::uint32_t base = context.options.sandbox_uid_range.last - (kIdsPerSlot - 1);
  if (context.mode == LaunchMode::kRoot) return {own, {base, base}, {base + kSupervisorInSlot, base + kSupervisorInSlot}};
  const std::uint32_t gid_base = context.subordinate.gid_first + (base - context.options.sandbox_uid_range.first);
  return {own, context.mode == LaunchMode::kSubordinateIds ? Owner{base, gid_base} : own, own};
}

// Modes that this caller may have, best first, with why a better one is out of reach.
std::vector<LaunchMode> candidates(DriverContext& context, std::vector<std::string>& notes) {
  if (geteuid() == 0) return {LaunchMode::kRoot};
  auto ids = find_subordinate_ids();
  if (!ids.ok()) {
    notes.push_back("no subordinate ids: " + std::string(ids.status().message()));
    return {LaunchMode::kSingleId};
  }
  constexpr std::uint32_t kSubordinateIdCount = 65'536;
  context.options.sandbox_uid_range = {ids->uid_first, ids->uid_first + kSubordinateIdCount - 1};
  context.subordinate = std::move(*ids);
  return {LaunchMode::kSubordinateIds, LaunchMode::kSingleId};
}

// OK, or why this host runs no sandboxes.
absl::Status choose_mode(DriverContext& context, std::vector<std::string>& notes) {
  if (auto status = check_landlock(); !status.ok()) return status;
  absl::Status tried;
  for (const LaunchMode mode : candidates(context, notes)) {
    context.mode = mode;
    tried = try_mode(context, probe_parties(context));
    if (tried.ok()) break;
    notes.push_back("mode " + std::string(to_string(mode)) + " does not work here: " + std::string(tried.message()));
  }
  if (!tried.ok()) {
    const std::string blocking = blocking_settings();
    return absl::FailedPreconditionError("the process driver can not run sandboxes on this host (mode " +
                                         std::string(to_string(context.mode)) + "): " + std::string(tried.message()) +
                                         (blocking.empty() ? "" : "; in the way: " + blocking));
  }
  notes.push_back("process driver mode " + std::string(to_string(context.mode)));
  if (context.mode == LaunchMode::kSingleId) notes.emplace_back("sandboxes share the kernel uid and groups of the gateway's user");
  if (context.cgroups.version() == CgroupVersion::kNone) notes.emplace_back("resource limits not enforced");
  if (context.cgroups.limits_memory())
    notes.push_back("memory of a sandbox that asks for no limit: " + context.options.default_memory_limit + " (default_memory_limit)");
  return absl::OkStatus();
}

}  // namespace
}  // namespace openshell::drivers::process

namespace openshell::drivers {

absl::StatusOr<std::unique_ptr<ComputeDriver>> make_process_driver(ProcessDriverOptions options) {
  using namespace process;
  if (options.sandbox_uid == 0 || options.sandbox_gid == 0) return absl::InvalidArgumentError("sandbox_uid and sandbox_gid must not be 0");
  if (options.sandbox_pids_limit == 0) return absl::InvalidArgumentError("sandbox_pids_limit must not be 0; leave it out for 2048");
  if (options.supervisor_uid == 0U || options.supervisor_gid == 0U)
    return absl::InvalidArgumentError("supervisor_uid and supervisor_gid must not be 0");
  DriverContext context;
  if (auto size = memory_share("default_memory_limit", options.default_memory_limit); !size.ok()) return size.status();
  auto tmp = memory_share("tmp_size_limit", options.tmp_size_limit);
  if (!tmp.ok()) return tmp.status();
  context.tmp_bytes = *tmp;
  if (auto status = find_programs(options); !status.ok()) return status;
  const bool as_root = geteuid() == 0;
  auto workspace = workspace_limit(options.workspace_size_limit, as_root);
  if (!workspace.ok()) return workspace.status();
  context.workspace_bytes = *workspace;
  if (as_root) {
    if (auto status = check_range(options.sandbox_uid_range, read_text("/etc/passwd"), read_text("/etc/group"), read_text("/etc/subuid"),
                                  read_text("/etc/subgid"));
        !status.ok()) {
      return status;
    }
  } else {
    options.slots_dir = options.runtime_dir + "/../uid-slots";  // subordinate ids are the user's own
  }
  if (auto slots = open_base(options.slots_dir, as_root ? 0711 : 0700); !slots.ok()) return slots.status();
  auto files = SandboxFiles::open(options.state_dir, options.runtime_dir, as_root);
  if (!files.ok()) return files.status();
  context.files = std::move(*files);
  const std::size_t socket_length = context.files.paths(std::string(36, 'x')).control_socket().size();
  if (socket_length > kMaxSocketPath) {
    return absl::FailedPreconditionError("runtime_dir " + options.runtime_dir + " is too long: a control socket in it would have " +
                                         std::to_string(socket_length) + " bytes, " + std::to_string(kMaxSocketPath) + " are possible");
  }
  context.options = std::move(options);
  auto lock = lock_state(context.files.state_dir());
  if (!lock.ok()) return lock.status();
  const auto mounts = read_mountinfo();
  if (!mounts.ok()) return mounts.status();
  context.cgroups = CgroupRoot::find(*mounts, read_text("/proc/self/cgroup"), context.options.cgroup_parent,
                                     "openshell-" + boundary::sha256_hex(context.files.state_dir()).substr(0, 12));
  std::vector<std::string> notes;
  absl::Status unusable = choose_mode(context, notes);
  if (!unusable.ok()) notes.emplace_back(unusable.message());
  auto driver = std::make_unique<ProcessDriver>(std::move(context), std::move(unusable), std::move(notes), std::move(*lock));
  driver->reconcile();
  return driver;
}

}  // namespace openshell::drivers
