#include "drivers/process/mount_plan.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "drivers/agent_skill.hpp"
#include "drivers/process/descriptor.hpp"
#include "isolation/boundary/digest.hpp"

namespace openshell::drivers::process {
namespace {

namespace fs = std::filesystem;
using Kind = MountStep::Kind;

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kRootInodes = 4096;

// Of the host's /etc, what a workload has no business with.
constexpr std::array<std::string_view, 6> kHiddenInEtc = {"openshell", "openshell-tls", "navigator", "ssh", "krb5.keytab", "machine-id"};
constexpr std::array<std::string_view, 5> kHiddenPrefixes = {"shadow", "gshadow", "sudoers", "passwd", "group"};  // and their backups
constexpr std::array<std::string_view, 6> kOwnFilesInEtc = {"resolv.conf", "hosts", "hostname", "passwd", "group", "machine-id"};
constexpr std::array<const char*, 6> kDevices = {"null", "zero", "full", "random", "urandom", "tty"};
constexpr std::array<const char*, 5> kBundles = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                                 "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool hidden_in_etc(const std::string& name) {
  return contains(kHiddenInEtc, name) || contains(kOwnFilesInEtc, name) ||
         std::any_of(kHiddenPrefixes.begin(), kHiddenPrefixes.end(),
                     [&name](std::string_view prefix) { return name.compare(0, prefix.size(), prefix) == 0; });
}

bool exists(const std::string& path, struct stat& info) { return lstat(path.c_str(), &info) == 0; }

// Collects the steps, and beside each mount what it will look like in the sandbox's mount table.
class Planner {
 public:
  explicit Planner(std::vector<Mount> host) : host_{std::move(host)} {}

  void tmpfs(std::string target, std::uint64_t mib, std::uint32_t mode, MountStep extra = {}) {
    memory(std::move(target), mib * kMiB, mode, std::move(extra));
  }
  void memory(std::string target, std::uint64_t bytes, std::uint32_t mode, MountStep extra) {
    extra.kind = Kind::kTmpfs;
    extra.target = target;
    extra.size_bytes = bytes;
    extra.mode = mode;
    plan.expected.push_back({std::move(target), "tmpfs", "/", {}, extra.read_only});
    plan.steps.push_back(std::move(extra));
  }
  void directory(std::string target, std::uint32_t mode = 0755, bool of_workload = false) {
    plan.steps.push_back({.kind = Kind::kDirectory, .target = std::move(target), .of_workload = of_workload, .mode = mode});
  }
  void symlink(std::string target, std::string to) {
    plan.steps.push_back({.kind = Kind::kSymlink, .target = std::move(target), .source = std::move(to)});
  }
  void file(std::string target, std::string content) {
    plan.steps.push_back({.kind = Kind::kFile, .target = std::move(target), .source = std::move(content), .mode = 0444});
  }
  void mount(MountStep step, ExpectedMount expected) {
    plan.steps.push_back(std::move(step));
    plan.expected.push_back(std::move(expected));
  }

  // A bind of the host. Mounts of the host below a recursive one come along and are expected too.
  absl::Status bind(const std::string& source, const std::string& target, MountStep extra = {}) {
    const Mount* shown = mount_of(host_, source);
    if (shown == nullptr) return absl::FailedPreconditionError("no mount of the host shows " + source);
    extra.kind = Kind::kBind;
    extra.source = source;
    extra.target = target;
    plan.expected.push_back({target, shown->type, root_within(*shown, source), shown->device, extra.read_only, true, !extra.devices});
    if (extra.recursive) {
      for (const Mount& below : host_) {
        if (below.mount_point == source || !is_below(below.mount_point, source)) continue;
        plan.expected.push_back(
            {target + below.mount_point.substr(source.size()), below.type, below.root, below.device, extra.read_only, true, true});
      }
    }
    plan.steps.push_back(std::move(extra));
    return absl::OkStatus();
  }

  // The host's directory of that name, or the same symlink where it has one (merged /usr).
  absl::Status mirror(const std::string& path) {
    struct stat info {};
    if (!exists(path, info)) return absl::OkStatus();
    if (S_ISLNK(info.st_mode)) {
      symlink(path, fs::read_symlink(path).string());
      return absl::OkStatus();
    }
    return S_ISDIR(info.st_mode) ? bind(path, path, {.recursive = true, .read_only = true}) : absl::OkStatus();
  }

  RootPlan plan;

 private:
  std::vector<Mount> host_;
};

std::vector<std::string> library_directories() {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/")) {
    if (entry.path().filename().string().compare(0, 3, "lib") == 0) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

absl::Status plan_system(Planner& planner) {
  std::vector<std::string> directories{"/bin", "/sbin"};
  for (std::string& library : library_directories()) directories.push_back(std::move(library));
  directories.emplace_back("/usr");
  for (const std::string& directory : directories) {
    if (auto status = planner.mirror(directory); !status.ok()) return status;
  }
  struct stat info {};
  if (exists("/opt", info) && S_ISDIR(info.st_mode)) return planner.bind("/opt", "/opt", {.recursive = true, .read_only = true});
  planner.directory("/opt");
  return absl::OkStatus();
}

absl::Status plan_host_etc(Planner& planner) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator("/etc", fs::directory_options::skip_permission_denied))
    names.push_back(entry.path().filename().string());
  if (names.size() > kMaxEtcEntries)
    return absl::FailedPreconditionError("the host's /etc has more than " + std::to_string(kMaxEtcEntries) + " entries");
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string path = "/etc/" + name;
    struct stat info {};
    if (hidden_in_etc(name) || !exists(path, info)) continue;
    if (S_ISLNK(info.st_mode)) {
      planner.symlink(path, fs::read_symlink(path).string());
    } else if (S_ISDIR(info.st_mode) || (S_ISREG(info.st_mode) && (info.st_mode & S_IROTH) != 0)) {
      if (auto status = planner.bind(path, path, {.recursive = S_ISDIR(info.st_mode), .read_only = true}); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

void plan_own_etc(Planner& planner, const RootInputs& in) {
  const std::string hostname = "sandbox-" + in.sandbox_name, uid = std::to_string(in.uid), gid = std::to_string(in.gid);
  planner.file("/etc/resolv.conf", "nameserver 127.0.0.53\n");
  planner.file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n192.0.2.1 " + hostname + "\n");
  planner.file("/etc/hostname", hostname + "\n");
  planner.file("/etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\nsandbox:x:" + uid + ":" + gid +
                                  ":sandbox:/sandbox:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
  std::string groups = "root:x:0:\nsandbox:x:" + gid + ":\n";
  for (const std::uint32_t group : in.groups) groups += "sandbox" + std::to_string(group) + ":x:" + std::to_string(group) + ":sandbox\n";
  planner.file("/etc/group", groups + "nogroup:x:65534:\n");
  planner.file("/etc/machine-id", boundary::sha256_hex(in.sandbox_id).substr(0, 32) + "\n");
  for (const char* directory : {"/etc/openshell", "/etc/openshell/skills", "/etc/openshell/skills/policy-advisor"})
    planner.directory(directory);
  for (const auto path : {kSkillPath, kSkillFolderPath}) planner.file(std::string{path}, std::string{kSkillText});
  planner.file(std::string{kAgentsPath}, std::string{kAgentsText});
}

// Each bundle file that the root has, once, symlinks followed where they stay in what the sandbox sees.
absl::Status plan_bundles(Planner& planner, const RootInputs& in) {
  std::set<std::string> done;
  for (const char* candidate : kBundles) {
    std::error_code error;
    const std::string real = fs::canonical(candidate, error).string();
    if (error || !fs::is_regular_file(real, error)) continue;
    if (!is_below(real, "/etc") && !is_below(real, "/usr") && !is_below(real, "/opt")) continue;
    if (!done.insert(real).second) continue;
    if (planner.plan.bundle_source.empty()) planner.plan.bundle_source = real;
    if (auto status = planner.bind(in.ca_dir + "/system-bundle.crt", real, {.read_only = true}); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status plan_private_directories(Planner& planner, const RootInputs& in) {
  planner.tmpfs("/run", 64, 0755, {.no_exec = true});
  planner.directory("/run/openshell");
  planner.directory("/run/lock");
  planner.tmpfs("/run/openshell/providers", 1, 0755, {.no_exec = true, .of_workload = true});
  if (auto status = planner.bind(in.ca_dir, "/run/openshell-supervisor-ca"); !status.ok()) return status;
  if (auto status = plan_bundles(planner, in); !status.ok()) return status;
  if (in.tmp_bytes) {
    planner.memory("/tmp", *in.tmp_bytes, 01777, {.of_workload = true});
  } else if (auto status = planner.bind(in.tmp_dir, "/tmp"); !status.ok()) {
    return status;
  }
  planner.tmpfs("/var", 16, 0755, {.read_only = true});
  planner.symlink("/var/tmp", "/tmp");
  planner.symlink("/var/run", "/run");
  planner.symlink("/var/lock", "/run/lock");
  for (const char* name : {"/var/cache", "/var/lib", "/var/spool"}) planner.directory(name);
  if (auto status = planner.bind(in.log_dir, "/var/log", {.read_only = true, .no_exec = true}); !status.ok()) return status;
  planner.tmpfs("/home", 1, 0755, {.read_only = true});
  planner.tmpfs("/root", 1, 0700, {.read_only = true});
  return absl::OkStatus();
}

absl::Status plan_devices(Planner& planner) {
  planner.tmpfs("/dev", 1, 0755, {.read_only = true, .no_exec = true});
  for (const char* name : kDevices) {
    const std::string path = std::string("/dev/") + name;
    struct stat info {};
    if (!exists(path, info) || !S_ISCHR(info.st_mode)) return absl::FailedPreconditionError(path + " is no device of this host");
    if (auto status = planner.bind(path, path, {.no_exec = true, .devices = true}); !status.ok()) return status;
  }
  for (const auto& [name, to] :
       {std::pair{"fd", "/proc/self/fd"}, std::pair{"stdin", "/proc/self/fd/0"}, std::pair{"stdout", "/proc/self/fd/1"},
        std::pair{"stderr", "/proc/self/fd/2"}, std::pair{"ptmx", "pts/ptmx"}}) {
    planner.symlink(std::string("/dev/") + name, to);
  }
  // Its devices are terminals of this sandbox only, which is what programs open there.
  planner.mount({.kind = Kind::kDevpts, .target = "/dev/pts", .no_exec = true, .devices = true},
                {.mount_point = "/dev/pts", .type = "devpts", .no_dev = false});
  planner.tmpfs("/dev/shm", 64, 01777, {.no_exec = true});
  return absl::OkStatus();
}

absl::Status plan_proc(Planner& planner, const RootInputs& in) {
  planner.mount({.kind = Kind::kProc, .target = "/proc", .no_exec = true}, {"/proc", "proc"});
  planner.plan.steps.push_back({.kind = Kind::kSysctl, .target = "/proc/sys/net/ipv4/ip_unprivileged_port_start", .source = "0"});
  if (in.ipv6) planner.plan.steps.push_back({.kind = Kind::kSysctl, .target = "/proc/sys/net/ipv6/ip_nonlocal_bind", .source = "1"});
  struct stat info {};
  for (const char* path : {"/proc/sys", "/proc/irq", "/proc/bus", "/proc/sysrq-trigger"}) {
    if (!exists(path, info)) continue;
    planner.mount({.kind = Kind::kBindInner, .target = path, .source = path, .recursive = true, .read_only = true, .no_exec = true},
                  {path, "proc", std::string(path).substr(5), {}, true});
  }
  for (const char* path : {"/proc/kcore", "/proc/keys", "/proc/timer_list"}) {
    if (!exists(path, info)) continue;
    if (auto status = planner.bind("/dev/null", path, {.no_exec = true, .devices = true}); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status plan_ours(Planner& planner, const RootInputs& in) {
  planner.directory("/.openshell", 0700, true);
  if (auto status = planner.bind(in.bundle_dir, "/.openshell/bin", {.recursive = true, .read_only = true}); !status.ok()) return status;
  if (auto status = planner.bind(in.launch_dir, "/.openshell/sandbox", {.no_exec = true}); !status.ok()) return status;
  if (auto status = planner.bind(in.channel_dir, "/.openshell/channel", {.no_exec = true}); !status.ok()) return status;
  if (!in.workspace_image.empty()) {
    planner.mount({.kind = Kind::kImage, .target = "/sandbox", .source = in.workspace_image}, {"/sandbox", "ext4"});
  } else if (auto status = planner.bind(in.workspace_dir, "/sandbox"); !status.ok()) {
    return status;
  }
  planner.directory("/sys");
  planner.directory("/sys/fs");
  planner.directory("/sys/fs/cgroup");
  if (!in.cgroup_dir.empty()) return planner.bind(in.cgroup_dir, "/sys/fs/cgroup", {.read_only = true, .no_exec = true});
  return absl::OkStatus();
}

// Private keys of the host; and a socket of the host in a tree that is bound could be connected to; file permissions alone do not keep a
// group member out.
void plan_covers(Planner& planner, const RootInputs& in) {
  std::set<std::string> covered;
  struct stat info {};
  if (exists("/etc/ssl/private", info) && S_ISDIR(info.st_mode)) {
    covered.insert("/etc/ssl/private");
    planner.tmpfs("/etc/ssl/private", 1, 0755, {.read_only = true, .no_exec = true});
  }
  const std::vector<MountStep> steps = planner.plan.steps;
  for (const std::string& socket : in.host_sockets) {
    std::error_code error;
    const std::string directory = fs::canonical(fs::path(socket).parent_path(), error).string();
    if (error) continue;
    for (const MountStep& step : steps) {
      if (step.kind != Kind::kBind || !step.recursive || !is_below(directory, step.source)) continue;
      const std::string target = step.target + directory.substr(step.source.size());
      if (covered.insert(target).second) planner.tmpfs(target, 1, 0755, {.read_only = true, .no_exec = true});
    }
  }
}

}  // namespace

absl::StatusOr<RootPlan> plan_host_root(const RootInputs& in) {
  auto host = read_mountinfo();
  if (!host.ok()) return host.status();
  Planner planner{std::move(*host)};
  planner.tmpfs("/", 4, 0755, {.read_only = true, .inodes = kRootInodes});
  if (auto status = plan_system(planner); !status.ok()) return status;
  planner.tmpfs("/etc", 4, 0755, {.read_only = true});
  if (auto status = plan_host_etc(planner); !status.ok()) return status;
  plan_own_etc(planner, in);
  if (auto status = plan_private_directories(planner, in); !status.ok()) return status;
  if (auto status = plan_devices(planner); !status.ok()) return status;
  if (auto status = plan_proc(planner, in); !status.ok()) return status;
  if (auto status = plan_ours(planner, in); !status.ok()) return status;
  plan_covers(planner, in);
  return std::move(planner.plan);
}

absl::Status compare_mounts(const std::vector<ExpectedMount>& expected, const std::vector<Mount>& found) {
  std::vector<ExpectedMount> missing = expected;
  for (const Mount& mount : found) {
    const auto same = [&mount](const ExpectedMount& e) {
      return e.mount_point == mount.mount_point && e.type == mount.type && e.root == mount.root &&
             (e.device.empty() || e.device == mount.device) && e.read_only == mount.read_only && e.no_suid == mount.no_suid &&
             e.no_dev == mount.no_dev;
    };
    const auto match = std::find_if(missing.begin(), missing.end(), same);
    if (match == missing.end()) {
      return absl::FailedPreconditionError("mount " + mount.mount_point + " (" + mount.type + " " + mount.root +
                                           (mount.read_only ? ", ro" : ", rw") + (mount.no_suid ? ", nosuid" : "") +
                                           (mount.no_dev ? ", nodev" : "") + ") is not as planned");
    }
    missing.erase(match);
  }
  if (!missing.empty()) return absl::FailedPreconditionError("mount " + missing.front().mount_point + " is missing");
  return absl::OkStatus();
}

std::vector<std::string> bound_socket_paths(std::string_view proc_net_unix) {
  std::vector<std::string> paths;
  std::istringstream lines{std::string(proc_net_unix)};
  for (std::string line; std::getline(lines, line);) {
    const auto slash = line.find(" /");
    if (slash != std::string::npos) paths.push_back(line.substr(slash + 1));
  }
  return paths;
}

}  // namespace openshell::drivers::process
