// The root of a sandbox of a host: a tmpfs with read-only binds of a fixed list of the host's directories and private ones for everything
// else, so that no socket of the host can be reached by a path. Written down as steps, and as the mounts that must be found afterwards.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "drivers/process/launch_plan.hpp"
#include "drivers/process/mountinfo.hpp"

namespace openshell::drivers::process {

/// Paths on the host, all absolute, and whom the sandbox belongs to.
struct RootInputs {
  std::string sandbox_id, sandbox_name;
  std::uint32_t uid = 1000, gid = 1000;  ///< As the workload sees them.
  std::vector<std::uint32_t> groups;
  std::string bundle_dir;                  ///< -> /.openshell/bin
  std::string launch_dir;                  ///< R/sandbox -> /.openshell/sandbox
  std::string channel_dir;                 ///< R/channel -> /.openshell/channel
  std::string ca_dir;                      ///< R/ca -> /run/openshell-supervisor-ca
  std::string workspace_dir, tmp_dir;      ///< S/workload/{workspace,tmp} -> /sandbox, /tmp
  std::string workspace_image;             ///< A file system that is /sandbox instead of `workspace_dir`; empty: none.
  std::optional<std::uint64_t> tmp_bytes;  ///< Set: /tmp is memory of that size, and `tmp_dir` is not used.
  std::string log_dir;                     ///< S/supervisor/log -> /var/log
  std::string cgroup_dir;                  ///< The sandbox's cgroup -> /sys/fs/cgroup; empty: none.
  std::vector<std::string> host_sockets;   ///< Paths of listening Unix sockets of the host; directories that hold one are covered.
  bool ipv6 = true;
};

/// A mount that the sandbox must have. `root` and `device` are checked for binds only.
struct ExpectedMount {
  std::string mount_point;
  std::string type;
  std::string root = "/";
  std::string device = {};
  bool read_only = false, no_suid = true, no_dev = true;
  friend bool operator==(const ExpectedMount&, const ExpectedMount&) = default;
};

struct RootPlan {
  std::vector<MountStep> steps;
  std::vector<ExpectedMount> expected;
  std::string bundle_source;  ///< The host's CA bundle that is the first content of `system-bundle.crt`; empty: none.
};

inline constexpr std::size_t kMaxEtcEntries = 4096;  ///< Entries of the host's /etc; more refuse the launch.

/// Looks at the host (`/etc`, `/lib*`, mount table) and plans. FAILED_PRECONDITION where the host does not fit.
absl::StatusOr<RootPlan> plan_host_root(const RootInputs& inputs);

/// Every mount of the sandbox, compared with the plan: mount point, type, root and device, read-only, nosuid, nodev; none missing, none
/// more. FAILED_PRECONDITION names the first difference.
absl::Status compare_mounts(const std::vector<ExpectedMount>& expected, const std::vector<Mount>& found);

/// Paths of Unix sockets that something of the host is bound to, from the text of /proc/net/unix; abstract ones left out.
std::vector<std::string> bound_socket_paths(std::string_view proc_net_unix);

}  // namespace openshell::drivers::process
