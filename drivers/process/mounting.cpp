#include "drivers/process/mounting.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>

#include "drivers/process/descriptor.hpp"
#include "drivers/process/workspace_image.hpp"

namespace openshell::drivers::process {
namespace {

// A path of the new root, every component as it is: a symlink on the way would let a mount land elsewhere.
Descriptor open_inside(int root, const std::string& path, std::uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return Descriptor{static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof how))};
}

struct Place {
  Descriptor parent;
  std::string name;
};

std::uint64_t attributes(const MountStep& step) {
  std::uint64_t set = MOUNT_ATTR_NOSUID;
  if (!step.devices) set |= MOUNT_ATTR_NODEV;
  if (step.no_exec) set |= MOUNT_ATTR_NOEXEC;
  return set;
}

class Builder {
 public:
  Builder(int root, std::uint32_t owner_uid, std::uint32_t owner_gid) : root_{root}, owner_uid_{owner_uid}, owner_gid_{owner_gid} {}

  absl::Status take(const MountStep& step) {
    switch (step.kind) {
      case MountStep::Kind::kTmpfs:
        return tmpfs(step);
      case MountStep::Kind::kDirectory:
        return directory(step);
      case MountStep::Kind::kSymlink:
        return symlink(step);
      case MountStep::Kind::kFile:
        return file(step);
      case MountStep::Kind::kBind:
        return bind(step, AT_FDCWD, step.source);
      case MountStep::Kind::kBindInner:
        return bind(step, root_, step.source.substr(1));
      case MountStep::Kind::kImage:
        return image(step);
      case MountStep::Kind::kProc:
        return filesystem(step, "proc", {});
      case MountStep::Kind::kDevpts:
        return filesystem(step, "devpts", {{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}});
      case MountStep::Kind::kSysctl:
        return sysctl(step);
    }
    return absl::InternalError("unknown mount step");
  }

 private:
  using Options = std::vector<std::pair<const char*, std::string>>;

  absl::StatusOr<Place> place(const MountStep& step) {
    const auto slash = step.target.rfind('/');
    if (slash == std::string::npos) return absl::InvalidArgumentError("mount point " + step.target + " is not absolute");
    Place found{open_inside(root_, slash == 0 ? "/" : step.target.substr(0, slash), O_PATH | O_DIRECTORY), step.target.substr(slash + 1)};
    if (!found.parent) return system_error("opening the directory of " + step.target);
    return found;
  }

  absl::Status own(const MountStep& step, int parent, const std::string& name) {
    if (step.of_workload && fchownat(parent, name.c_str(), owner_uid_, owner_gid_, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0) {
      return system_error("giving " + step.target + " to the workload");
    }
    return absl::OkStatus();
  }

  absl::Status directory(const MountStep& step) {
    auto where = place(step);
    if (!where.ok()) return where.status();
    if (mkdirat(where->parent.get(), where->name.c_str(), step.mode) != 0) return system_error("making " + step.target);
    if (auto status = own(step, where->parent.get(), where->name); !status.ok()) return status;
    if (fchmodat(where->parent.get(), where->name.c_str(), step.mode, 0) != 0) return system_error("setting the mode of " + step.target);
    return absl::OkStatus();
  }

  absl::Status symlink(const MountStep& step) {
    auto where = place(step);
    if (!where.ok()) return where.status();
    if (symlinkat(step.source.c_str(), where->parent.get(), where->name.c_str()) != 0)
      return system_error("making the symlink " + step.target);
    return absl::OkStatus();
  }

  absl::Status file(const MountStep& step) {
    auto where = place(step);
    if (!where.ok()) return where.status();
    const Descriptor made{openat(where->parent.get(), where->name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (!made) return system_error("making " + step.target);
    if (write(made.get(), step.source.data(), step.source.size()) != static_cast<ssize_t>(step.source.size()) ||
        fchmod(made.get(), step.mode) != 0) {
      return system_error("writing " + step.target);
    }
    return absl::OkStatus();
  }

  absl::Status sysctl(const MountStep& step) {
    const Descriptor file = open_inside(root_, step.target, O_WRONLY);
    if (!file) return system_error("opening " + step.target);
    if (write(file.get(), step.source.data(), step.source.size()) < 0) return system_error("writing " + step.target);
    return absl::OkStatus();
  }

  absl::Status tmpfs(const MountStep& step) {
    char mode[16];
    snprintf(mode, sizeof mode, "%o", step.mode);
    Options options{{"mode", mode}};
    if (step.size_bytes != 0) options.emplace_back("size", std::to_string(step.size_bytes));
    if (step.inodes != 0) options.emplace_back("nr_inodes", std::to_string(step.inodes));
    return filesystem(step, "tmpfs", options);
  }

  absl::Status filesystem(const MountStep& step, const char* type, const Options& options) {
    const Descriptor context{fsopen(type, FSOPEN_CLOEXEC)};
    if (!context) return system_error(std::string("opening a ") + type + " for " + step.target);
    for (const auto& [key, value] : options) {
      const int result = value.empty() ? fsconfig(context.get(), FSCONFIG_SET_FLAG, key, nullptr, 0)
                                       : fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0);
      if (result != 0) return system_error(std::string("setting ") + key + " of " + step.target);
    }
    if (fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
      return system_error(std::string("creating the ") + type + " of " + step.target);
    const Descriptor mount{fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attributes(step)))};
    if (!mount) return system_error(std::string("mounting the ") + type + " of " + step.target);
    if (auto status = own(step, mount.get(), ""); !status.ok()) return status;
    return attach(step, mount.get(), true);
  }

  absl::Status image(const MountStep& step) {
    auto mount = mount_workspace_image(step.source, attributes(step));
    return mount.ok() ? attach(step, mount->get(), true) : mount.status();
  }

  absl::Status bind(const MountStep& step, int base, const std::string& source) {
    const unsigned recursive = step.recursive ? AT_RECURSIVE : 0;
    const Descriptor tree{
        open_tree(base, source.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | recursive)};
    if (!tree) return system_error("binding " + step.source + " to " + step.target);
    mount_attr change{};
    change.attr_set = attributes(step) | (step.read_only ? MOUNT_ATTR_RDONLY : 0);
    if (mount_setattr(tree.get(), "", AT_EMPTY_PATH | recursive, &change, sizeof change) != 0)
      return system_error("restricting the mount of " + step.target);
    struct stat kind {};
    if (fstat(tree.get(), &kind) != 0) return system_error("looking at " + step.source);
    if (S_ISLNK(kind.st_mode)) return absl::FailedPreconditionError(step.source + " is a symlink and can not be mounted at " + step.target);
    return attach(step, tree.get(), S_ISDIR(kind.st_mode));
  }

  // Mounts at the target, which is made where it is missing.
  absl::Status attach(const MountStep& step, int mount, bool is_directory) {
    Descriptor target = open_inside(root_, step.target, O_PATH | O_NOFOLLOW);
    if (!target) {
      auto where = place(step);
      if (!where.ok()) return where.status();
      const int made = is_directory ? mkdirat(where->parent.get(), where->name.c_str(), 0755)
                                    : mknodat(where->parent.get(), where->name.c_str(), S_IFREG | 0444, 0);
      if (made != 0) return system_error("making the mount point " + step.target);
      target = open_inside(root_, step.target, O_PATH | O_NOFOLLOW);
      if (!target) return system_error("opening the mount point " + step.target);
    }
    if (move_mount(mount, "", target.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
      return system_error("mounting " + step.target);
    return absl::OkStatus();
  }

  int root_;
  std::uint32_t owner_uid_, owner_gid_;
};

absl::Status seal(const std::string& path) {
  mount_attr change{};
  change.attr_set = MOUNT_ATTR_RDONLY;
  if (mount_setattr(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, &change, sizeof change) != 0)
    return system_error("making " + path + " read-only");
  return absl::OkStatus();
}

}  // namespace

absl::Status make_mounts_private() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return system_error("making the mounts private");
  return absl::OkStatus();
}

absl::Status enter_root(const std::vector<MountStep>& steps, const std::string& root_directory, std::uint32_t owner_uid,
                        std::uint32_t owner_gid) {
  if (steps.empty() || steps.front().kind != MountStep::Kind::kTmpfs || steps.front().target != "/") {
    return absl::InvalidArgumentError("the first step of a root is its tmpfs");
  }
  umask(0);
  const MountStep& root_step = steps.front();
  const std::string options = "mode=0755,size=" + std::to_string(root_step.size_bytes) + ",nr_inodes=" + std::to_string(root_step.inodes);
  if (mount("tmpfs", root_directory.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    return system_error("mounting the root at " + root_directory);
  const Descriptor root{open(root_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!root) return system_error("opening the root at " + root_directory);

  Builder builder{root.get(), owner_uid, owner_gid};
  for (auto step = steps.begin() + 1; step != steps.end(); ++step) {
    if (auto status = builder.take(*step); !status.ok()) return status;
  }
  // The old root ends up mounted over the new one and is detached from there: no directory for it is needed (pivot_root(2), NOTES).
  if (fchdir(root.get()) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) return system_error("entering the new root");
  if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0) return system_error("detaching the old root");
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->kind != MountStep::Kind::kTmpfs || !step->read_only) continue;
    if (auto status = seal(step->target); !status.ok()) return status;
  }
  umask(022);
  return absl::OkStatus();
}

}  // namespace openshell::drivers::process
