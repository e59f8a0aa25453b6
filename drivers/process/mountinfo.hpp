// /proc/<pid>/mountinfo, proc_pid_mountinfo(5).
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace openshell::drivers::process {

struct Mount {
  int id = 0;
  std::string device;  ///< `major:minor`
  std::string root;    ///< Path within the file system.
  std::string mount_point;
  std::string type;
  std::string super_options;  ///< Of the file system; names the controllers of a cgroup mount.
  bool read_only = false, no_suid = false, no_dev = false, no_exec = false;  ///< Flags of the mount, not of the file system.
};

absl::StatusOr<std::vector<Mount>> parse_mountinfo(std::string_view text);
absl::StatusOr<std::vector<Mount>> read_mountinfo(const std::string& path = "/proc/self/mountinfo");

/// `wanted` is one of the comma-separated options.
bool has_option(std::string_view options, std::string_view wanted);
/// `path` is `directory` or lies below it.
bool is_below(std::string_view path, std::string_view directory);
/// The mount that shows at an absolute path without symlinks: the longest mount point, of equals the last. nullptr: none.
const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path);
/// Path within the file system of what lies at `path`, which `mount` shows.
std::string root_within(const Mount& mount, std::string_view path);

}  // namespace openshell::drivers::process
