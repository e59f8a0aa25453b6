// What the sandbox reads of its own cgroup: the limit on processes. Limits are set by drivers, outside. cgroups(7), v2 and v1.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace openshell::isolation {

/// The pids.max that holds for this process. nullopt: "max". Unavailable, with the reason, when no pids controller is visible or its text
/// is no number.
absl::StatusOr<std::optional<std::uint64_t>> own_pid_limit(const std::string& sysfs_root = "/sys/fs/cgroup",
                                                           const std::string& proc_self_cgroup = "/proc/self/cgroup");

/// Parses the text of a pids.max file; "max" in any case is nullopt. InvalidArgument otherwise.
absl::StatusOr<std::optional<std::uint64_t>> parse_pid_limit(const std::string& text);

}  // namespace openshell::isolation
