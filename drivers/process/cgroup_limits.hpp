// Limits of one sandbox by cgroups: version 2 where its controllers can be used, else version 1, else none (which the status says).
// cgroups(7).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/process/mountinfo.hpp"

namespace openshell::drivers::process {

/// What is asked for; unset: no limit of that kind.
struct Limits {
  std::optional<std::uint64_t> cpu_milli;  ///< Thousandths of a CPU.
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> processes;
};

/// `500m`, `2`, `1.5` -> thousandths of a CPU, at least 1. INVALID_ARGUMENT otherwise.
absl::StatusOr<std::uint64_t> parse_cpu(std::string_view text);
/// `512Mi`, `1G`, `1048576` (suffix none, K, M, G, T, P, E, Ki..Ei) -> bytes, at least 1. INVALID_ARGUMENT otherwise.
absl::StatusOr<std::uint64_t> parse_memory(std::string_view text);

/// A quantity as above, a share of `whole` like `50%`, or `none`. INVALID_ARGUMENT otherwise.
absl::StatusOr<std::optional<std::uint64_t>> parse_share(std::string_view text, std::uint64_t whole);
/// Bytes of memory that this host has; 0: unknown.
std::uint64_t host_memory();

enum class CgroupVersion { kNone, kV1, kV2 };

/// Where this host lets us make cgroups, found by doing it.
class CgroupRoot {
 public:
  /// `parent`: a path below the cgroup mount, or empty to find one. `own` is the text of /proc/self/cgroup. `name`: the
  /// directory that holds the sandboxes of one gateway, so that two gateways never tidy up each other's.
  static CgroupRoot find(const std::vector<Mount>& mounts, std::string_view own, const std::string& parent, const std::string& name);

  [[nodiscard]] CgroupVersion version() const { return version_; }
  [[nodiscard]] bool limits_cpu() const { return cpu_; }
  [[nodiscard]] bool limits_memory() const { return memory_; }
  [[nodiscard]] bool limits_processes() const { return processes_; }

  /// Directories (one per hierarchy) of a sandbox, whether they exist or not.
  [[nodiscard]] std::vector<std::string> directories(const std::string& sandbox_id) const;
  /// The directory that the sandbox sees as /sys/fs/cgroup, with `pids.max` in it; empty: none.
  [[nodiscard]] std::string visible_directory(const std::string& sandbox_id) const;
  /// Makes them, the directory above them included, and writes the limits.
  [[nodiscard]] absl::Status make(const std::string& sandbox_id, const Limits& limits) const;
  /// Kills every process in them (cgroup.kill where the kernel has it) and removes them once they are empty.
  [[nodiscard]] absl::Status remove(const std::string& sandbox_id) const;
  /// The kernel killed something of the sandbox because its memory limit was reached.
  [[nodiscard]] bool out_of_memory(const std::string& sandbox_id) const;
  /// Removes what `find` made above the sandboxes, where it is empty.
  void tidy() const;
  /// Sandbox ids that have a directory.
  [[nodiscard]] std::vector<std::string> existing() const;

 private:
  struct Hierarchy {
    std::string parent;  ///< `<parent>/<name>`, made when needed.
    bool cpu = false, memory = false, processes = false, version2 = false;
  };
  /// Empty directories that gateways which were killed left below `base`.
  static void remove_left_over(const std::string& base);
  static std::vector<std::string> existing_in(const Hierarchy& hierarchy);
  std::vector<Hierarchy> hierarchies_;
  CgroupVersion version_ = CgroupVersion::kNone;
  bool cpu_ = false, memory_ = false, processes_ = false;
};

}  // namespace openshell::drivers::process
