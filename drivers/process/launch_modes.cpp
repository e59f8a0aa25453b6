#include "drivers/process/launch_modes.hpp"

#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <fstream>
#include <sstream>

namespace openshell::drivers {

std::string_view to_string(LaunchMode mode) noexcept {
  switch (mode) {
    case LaunchMode::kRoot:
      return "root";
    case LaunchMode::kSubordinateIds:
      return "subordinate";
    case LaunchMode::kSingleId:
      return "single";
  }
  return "unknown";
}

}  // namespace openshell::drivers

namespace openshell::drivers::process {
namespace {

constexpr long kRequiredAbi = 3;

std::string first_line(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

std::string advice(const utsname& kernel) {
  std::ifstream release{"/etc/os-release"};
  std::ostringstream text;
  text << release.rdbuf();
  if (text.str().find("VERSION_CODENAME=bookworm") == std::string::npos) return "Install a newer kernel and reboot.";
  const std::string arch = std::string(kernel.machine) == "aarch64" ? "arm64" : "amd64";
  return "On Debian 12 install the kernel of bookworm-backports (apt install -t bookworm-backports linux-image-" + arch + ") and reboot.";
}

}  // namespace

absl::Status check_landlock() {
  const long abi = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi >= kRequiredAbi) return absl::OkStatus();
  const int error = errno;
  utsname kernel{};
  uname(&kernel);
  const std::string release = kernel.release, need = "Landlock ABI 3 or newer is required";
  if (abi >= 0 || error == ENOSYS) {
    const std::string found = abi >= 0 ? " offers ABI " + std::to_string(abi) : " has no Landlock (built without CONFIG_SECURITY_LANDLOCK)";
    return absl::FailedPreconditionError(need + " (Linux 6.2, or an older kernel with the vendor backport); kernel " + release + found +
                                         ". " + advice(kernel));
  }
  if (error == EOPNOTSUPP) {
    return absl::FailedPreconditionError(need + "; kernel " + release +
                                         " has Landlock but it is not enabled: add landlock to the lsm= boot parameter and reboot.");
  }
  return absl::FailedPreconditionError(need + "; the Landlock system calls are blocked here (container seccomp profile).");
}

absl::Status try_mode(const DriverContext& context, const Parties& parties) {
  const std::string id = "probe-" + std::to_string(getpid());
  const auto clean = [&]() -> absl::Status {
    if (auto status = context.files.remove_runtime(id); !status.ok()) return status;
    return context.files.remove_state(id).status();
  };
  delegate_files(context, id, parties, context.options.sandbox_uid, context.options.sandbox_gid);
  if (auto status = clean(); !status.ok()) return status;
  delegate_files(context, id, parties, context.options.sandbox_uid, context.options.sandbox_gid);
  absl::Status status = context.files.make_state(id, parties);
  if (status.ok()) status = context.files.make_runtime(id, parties, "");
  if (!status.ok()) {
    (void)clean();
    return status;
  }
  RootInputs inputs = root_inputs(context, id, "probe", context.options.sandbox_uid, context.options.sandbox_gid);
  inputs.cgroup_dir.clear();
  if (access(inputs.bundle_dir.c_str(), F_OK) != 0) inputs.bundle_dir = inputs.launch_dir;
  const auto root = plan_host_root(inputs);
  RunningGeneration running;
  if (root.ok()) {
    const SandboxPaths paths = context.files.paths(id);
    LaunchPlan plan;
    plan.mode = context.mode;
    plan.sandbox_id = id;
    plan.hostname = "probe";
    plan.root_directory = paths.runtime + "/driver/root";
    plan.state_directory = paths.state + "/driver";
    plan.mounts = root->steps;
    set_identity(plan, context, parties, context.options.sandbox_uid, context.options.sandbox_gid);
    plan.init_argv = {"/bin/true"};
    auto control = start_monitor(context.options.monitor_path, paths.state + "/driver/launcher.log", running);
    status = control.ok() ? send_frame(control->get(), Word::kPrepare, encode(plan)) : control.status();
    if (status.ok()) {
      const auto answer = receive_frame(control->get());
      if (!answer.ok())
        status = absl::InternalError("the monitor ended without an answer");
      else if (answer->word != Word::kPrepared)
        status = absl::FailedPreconditionError(answer->body);
    }
  } else {
    status = root.status();
  }
  // The socket is closed by now; the monitor kills what it started.
  const absl::Status ended = end_generation(context, id, running, std::chrono::milliseconds{0});
  const absl::Status cleaned = clean();
  if (!status.ok()) return status;
  return ended.ok() ? cleaned : ended;
}

std::string blocking_settings() {
  std::string found;
  const auto name = [&found](const std::string& setting) { found += (found.empty() ? "" : ", ") + setting; };
  if (first_line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1") name("kernel.apparmor_restrict_unprivileged_userns=1");
  if (first_line("/proc/sys/user/max_user_namespaces") == "0") name("user.max_user_namespaces=0");
  if (first_line("/proc/sys/kernel/unprivileged_userns_clone") == "0") name("kernel.unprivileged_userns_clone=0");
  const auto mounts = read_mountinfo();
  for (const Mount& mount : mounts.ok() ? *mounts : std::vector<Mount>{}) {
    if (mount.mount_point.compare(0, 6, "/proc/") == 0 && mount.mount_point != "/proc/sys/fs/binfmt_misc") {
      name("a masked /proc (" + mount.mount_point + ")");
      break;
    }
  }
  return found;
}

}  // namespace openshell::drivers::process
