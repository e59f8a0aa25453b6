#include "drivers/process/workspace_image.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace openshell::drivers::process {
namespace {

constexpr std::array kMakers = {"/usr/sbin/mke2fs", "/sbin/mke2fs"};
constexpr int kLoopTries = 64;  // somebody else may take the free device first

const char* find_maker() {
  for (const char* candidate : kMakers) {
    if (access(candidate, X_OK) == 0) return candidate;
  }
  return nullptr;
}

absl::Status run_maker(const std::string& path, const Owner& owner) {
  if (auto status = check_workspace_maker(); !status.ok()) return status;
  const char* maker = find_maker();
  const std::string extended = "root_owner=" + std::to_string(owner.uid) + ":" + std::to_string(owner.gid) + ",lazy_itable_init=1";
  std::vector<std::string> words{maker, "-q", "-F", "-t", "ext4", "-m", "0", "-E", extended, path};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<char*, 1> environment{nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, maker, &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return absl::UnavailableError("mke2fs could not make the file system of " + path);
  return absl::OkStatus();
}

struct LoopDevice {
  std::string path;
  Descriptor held;  ///< cleared by the kernel with its last user; until the file system is mounted that is this
};

absl::StatusOr<LoopDevice> attach_loop(int image) {
  const Descriptor control{open("/dev/loop-control", O_RDWR | O_CLOEXEC)};
  if (!control) return system_error("opening /dev/loop-control");
  for (int i = 0; i < kLoopTries; ++i) {
    const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return system_error("looking for a free loop device");
    LoopDevice device{"/dev/loop" + std::to_string(number), {}};
    device.held = Descriptor{open(device.path.c_str(), O_RDWR | O_CLOEXEC)};
    if (!device.held) return system_error("opening " + device.path);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(image);
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(device.held.get(), LOOP_CONFIGURE, &config) == 0) return device;
    if (errno != EBUSY) return system_error("setting up " + device.path);
  }
  return absl::UnavailableError("no loop device is free");
}

}  // namespace

absl::Status check_workspace_maker() {
  return find_maker() != nullptr ? absl::OkStatus()
                                 : absl::FailedPreconditionError("workspace_size_limit needs mke2fs; install the package e2fsprogs");
}

absl::Status make_workspace_image(const std::string& path, std::uint64_t bytes, const Owner& owner) {
  if (access(path.c_str(), F_OK) == 0) return absl::OkStatus();
  const std::string part = path + ".part";
  (void)unlink(part.c_str());
  {
    const Descriptor file{open(part.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!file) return system_error("making " + part);
    if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return system_error("sizing " + part);
  }
  if (auto status = run_maker(part, owner); !status.ok()) {
    (void)unlink(part.c_str());
    return status;
  }
  return rename(part.c_str(), path.c_str()) == 0 ? absl::OkStatus() : system_error("naming " + path);
}

absl::StatusOr<Descriptor> mount_workspace_image(const std::string& path, std::uint64_t attributes) {
  const Descriptor image{open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
  if (!image) return system_error("opening " + path);
  auto device = attach_loop(image.get());
  if (!device.ok()) return device.status();
  const Descriptor context{fsopen("ext4", FSOPEN_CLOEXEC)};
  if (!context) return system_error("opening an ext4 for " + path);
  if (fsconfig(context.get(), FSCONFIG_SET_STRING, "source", device->path.c_str(), 0) != 0 ||
      fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return system_error("reading the file system in " + path);
  }
  Descriptor mount{fsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attributes))};
  if (!mount) return system_error("mounting " + path);
  (void)unlinkat(mount.get(), "lost+found", AT_REMOVEDIR);  // a new workspace is empty
  return mount;
}

}  // namespace openshell::drivers::process
