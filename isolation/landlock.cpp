#include "isolation/landlock.hpp"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "isolation/kernel_abi.hpp"

namespace openshell::isolation {

namespace {

constexpr char kProtectedName[] = ".openshell";

// The rights of ABI 3 by what the open descriptor is (bits 0..14 of landlock.h).
constexpr __u64 kReadFile = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE;
constexpr __u64 kReadDirectory = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr __u64 kTruncate = 1ULL << 14;
constexpr __u64 kWriteFile = kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr __u64 kAll = (1ULL << 15) - 1;

FileDescriptor create_ruleset(const kernel::LandlockRulesetAttr& attr, const LandlockFeatures& features) {
  // Older kernels refuse a longer struct only when the unknown tail is not zero, but the size is kept exact all the same.
  const std::size_t size = features.scopes_signals() ? sizeof attr : features.confines_tcp_connect() ? 16 : 8;
  return FileDescriptor{static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attr, size, 0))};
}

int add_rule(int ruleset, int fd, __u64 rights) {
  const landlock_path_beneath_attr rule{.allowed_access = rights, .parent_fd = fd};
  return static_cast<int>(::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0));
}

/// The one word-by-word reason that logs and errors carry.
const char* reason_of(int error) {
  switch (error) {
    case ENOENT:
      return "path does not exist";
    case EACCES:
    case EPERM:
      return "permission denied";
    case ELOOP:
      return "too many symlink levels";
    case ENAMETOOLONG:
      return "path name too long";
    case ENOTDIR:
      return "path component is not a directory";
    default:
      return "unexpected error";
  }
}

absl::Status errno_failure(const std::string& what) {
  const int error = errno;
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(error)));
}

struct Protected {
  bool present = false;
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const Protected&, const Protected&) = default;
};

absl::StatusOr<Protected> stat_protected(int root) {
  struct stat info {};
  if (::fstatat(root, kProtectedName, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return Protected{};
    return errno_failure("/.openshell can not be examined");
  }
  if (!S_ISDIR(info.st_mode))
    return absl::FailedPreconditionError("/.openshell must be a real directory, and is something else; the image can not be used");
  return Protected{true, info.st_dev, info.st_ino};
}

struct DirectoryCloser {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

/// One rule for every root child but the protected one. Returns how many, or -1 with errno.
int add_root_children(int ruleset, int root) {
  const int listing = ::openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listing < 0) return -1;
  std::unique_ptr<DIR, DirectoryCloser> directory{::fdopendir(listing)};
  if (!directory) {
    ::close(listing);
    return -1;
  }
  int rules = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || name == kProtectedName) continue;
    const FileDescriptor child{::openat(root, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC)};
    struct stat info {};
    if (!child || ::fstat(child.get(), &info) != 0) continue;  // vanished, or closed to this identity
    if (S_ISLNK(info.st_mode)) continue;                       // its target has a root entry of its own
    if (add_rule(ruleset, child.get(), S_ISDIR(info.st_mode) ? kAll : kWriteFile) != 0) return -1;
    ++rules;
  }
  return rules;
}

}  // namespace

absl::StatusOr<LandlockFeatures> probe_landlock() {
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  constexpr char kCure[] =
      "; openshell needs Landlock ABI 3 (Linux 6.2 or later; on Debian 12: apt install -t bookworm-backports linux-image-amd64)";
  if (abi < 0) {
    switch (errno) {
      case ENOSYS:
        return absl::FailedPreconditionError(absl::StrCat("Landlock is not implemented (kernel lacks CONFIG_SECURITY_LANDLOCK)", kCure));
      case EOPNOTSUPP:
        return absl::FailedPreconditionError(absl::StrCat("Landlock is not enabled (add landlock to the lsm= boot parameter)", kCure));
      case EPERM:
        return absl::FailedPreconditionError("Landlock is blocked (a container seccomp profile denies the Landlock system calls)");
      default:
        return errno_failure("Landlock can not be probed");
    }
  }
  if (abi < kMinimumLandlockAbi) return absl::FailedPreconditionError(absl::StrCat("Landlock ABI ", abi, " found", kCure));
  return LandlockFeatures{static_cast<int>(abi)};
}

absl::StatusOr<FileDescriptor> prepare_landlock_baseline(const LandlockFeatures& features, const std::string& root) {
  const FileDescriptor pinned{::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!pinned) return errno_failure(absl::StrCat("Landlock baseline: root directory '", root, "' can not be opened"));
  const auto before = stat_protected(pinned.get());
  if (!before.ok()) return before.status();

  kernel::LandlockRulesetAttr attr{};
  attr.handled_access_fs = kAll;
  if (features.confines_tcp_connect()) attr.handled_access_net = kernel::kLandlockAccessNetConnectTcp;
  if (features.scopes_signals()) attr.scoped = kernel::kLandlockScopeSignal | kernel::kLandlockScopeAbstractUnixSocket;
  FileDescriptor ruleset = create_ruleset(attr, features);
  if (!ruleset) return errno_failure("Landlock baseline: ruleset can not be made");

  const int rules = add_root_children(ruleset.get(), pinned.get());
  if (rules < 0) return errno_failure("Landlock baseline: the children of the root directory can not be covered");
  if (rules == 0) return absl::FailedPreconditionError("Landlock baseline: no child of the root directory could be opened");
  const auto after = stat_protected(pinned.get());
  if (!after.ok()) return after.status();
  if (*after != *before) return absl::FailedPreconditionError("/.openshell was replaced while the Landlock baseline was built");
  return ruleset;
}

namespace {

/// Where a policy path could not be opened: a notice, or the reason for failing the launch.
absl::Status handle_unopened(const FilesystemPolicy& policy, const std::string& path, int error, LandlockLayer& layer) {
  const char* reason = reason_of(error);
  if (error == EACCES || error == EPERM) {
    layer.notices.push_back({LandlockNotice::Kind::AlreadyDenied, path, reason});
    return absl::OkStatus();
  }
  const bool optional = std::find(policy.optional.begin(), policy.optional.end(), path) != policy.optional.end();
  if (optional && error == ENOENT) return absl::OkStatus();
  if (policy.compatibility == LandlockCompatibility::HardRequirement)
    return absl::FailedPreconditionError(absl::StrCat("Landlock path unavailable in hard_requirement mode: ", path, " (", reason, ")"));
  layer.notices.push_back({error == ENOENT ? LandlockNotice::Kind::Skipped : LandlockNotice::Kind::Degraded, path, reason});
  return absl::OkStatus();
}

absl::Status add_policy_path(const FilesystemPolicy& policy, const std::string& path, bool writable, LandlockLayer& layer) {
  if (path.empty() || path[0] != '/' || path.find('\0') != std::string::npos || absl::StrContains(absl::StrCat(path, "/"), "/../"))
    return absl::InvalidArgumentError(absl::StrCat("filesystem path '", path, "' must be absolute and without '..'"));
  const FileDescriptor target{::open(path.c_str(), O_PATH | O_CLOEXEC)};
  struct stat info {};
  if (!target || ::fstat(target.get(), &info) != 0) return handle_unopened(policy, path, errno, layer);
  const bool directory = S_ISDIR(info.st_mode);
  const __u64 rights = writable ? (directory ? kAll : kWriteFile) : (directory ? kReadDirectory : kReadFile);
  if (add_rule(layer.ruleset.get(), target.get(), rights) != 0) return handle_unopened(policy, path, errno, layer);
  ++layer.rules;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LandlockLayer> prepare_landlock_policy(const LandlockFeatures& features, const FilesystemPolicy& policy) {
  const std::size_t paths = policy.read_only.size() + policy.read_write.size();
  if (paths > kMaxFilesystemPaths)
    return absl::InvalidArgumentError(
        absl::StrCat("filesystem policy lists ", paths, " paths, at most ", kMaxFilesystemPaths, " are allowed"));
  LandlockLayer layer;
  if (paths == 0) {
    if (policy.compatibility == LandlockCompatibility::HardRequirement)
      return absl::FailedPreconditionError("Landlock ruleset has zero valid paths: the policy lists none and asks for hard_requirement");
    layer.notices.push_back({LandlockNotice::Kind::Unrestricted, "", "the policy lists no path"});
    return layer;
  }
  kernel::LandlockRulesetAttr attr{};
  attr.handled_access_fs = kAll;
  layer.ruleset = create_ruleset(attr, features);
  if (!layer.ruleset) return errno_failure("Landlock policy: ruleset can not be made");
  for (const auto& path : policy.read_only)
    if (auto status = add_policy_path(policy, path, false, layer); !status.ok()) return status;
  for (const auto& path : policy.read_write)
    if (auto status = add_policy_path(policy, path, true, layer); !status.ok()) return status;
  // An empty ruleset would deny everything, and dropping it would open what the author meant to close: the launch fails in both modes.
  if (layer.rules == 0)
    return absl::FailedPreconditionError("Landlock ruleset has zero valid paths: none of the policy's paths could be opened");
  return layer;
}

int restrict_self(int ruleset_fd) noexcept { return ::syscall(SYS_landlock_restrict_self, ruleset_fd, 0) == 0 ? 0 : errno; }

}  // namespace openshell::isolation
