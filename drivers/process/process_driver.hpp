// The `process` driver: sandboxes as plain processes of this host, without a container engine. Each gets namespaces, a root and a kernel
// uid of its own; the supervisor is a separate process of the host. Works as root, and as a user where user namespaces are allowed.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/driver.hpp"

namespace openshell::drivers {

/// A range of kernel ids, both ends included.
struct IdRange {
  std::uint32_t first = 1'900'000'000;
  std::uint32_t last = 1'900'065'535;
};

/// How the driver is set up: the keys of `[openshell.drivers.process]` and what the gateway adds. Paths are absolute.
struct ProcessDriverOptions {
  std::string state_dir = {};    ///< Kept: `<state base>/process-driver`. As root every component must be passable by others (o+x).
  std::string runtime_dir = {};  ///< One generation: `<run base>/process-driver`. Short: a socket path in it must stay within 107 bytes.
  std::string bundle_dir = {};   ///< Holds `openshell-sandbox` and what it needs; empty: `<directory of this program>/../bundle`.
  std::string supervisor_path = {};  ///< Empty: `openshell-supervisor` beside this program.
  std::string monitor_path = {};     ///< Empty: `openshell-sandbox-monitor` beside this program.
  /// What is started as PID 1, paths inside the sandbox. Empty: `ld.so` of the bundle where it has one, with `openshell-sandbox --bootstrap
  /// ...`.
  std::vector<std::string> init_argv = {};

  std::string gateway_endpoint = {};         ///< `https://host:port` that supervisors dial.
  std::string gateway_ca_pem = {};           ///< Trust anchor of that endpoint; empty without TLS.
  std::string gateway_tls_server_name = {};  ///< Empty: the endpoint's host.
  std::string gateway_id = "openshell";
  std::string driver_version = {};
  std::string supervisor_log_level = "info";
  bool telemetry_enabled = false;

  std::uint32_t sandbox_uid = 1000;  ///< What the workload sees; never 0.
  std::uint32_t sandbox_gid = 1000;
  IdRange sandbox_uid_range = {};                    ///< As root: kernel ids, slots of 16.
  std::optional<std::uint32_t> supervisor_uid = {};  ///< As root; unset: number 15 of the sandbox's slot.
  std::optional<std::uint32_t> supervisor_gid = {};
  std::string host_gateway_ip = "127.0.0.1";  ///< What host.openshell.internal means.
  std::uint32_t sandbox_pids_limit = 2048;
  /// Of a sandbox that asks for none: a quantity (`4Gi`), a share of the host's memory (`50%`), or `none`. Nothing without cgroups.
  std::string default_memory_limit = "50%";
  /// The most that /tmp (and /var/tmp) may hold, in memory that counts to the sandbox's: likewise a quantity or a share. `none`: /tmp lies
  /// on the disk of `state_dir`, without a bound.
  std::string tmp_size_limit = "2Gi";
  /// What /sandbox of a new sandbox may hold: a quantity, at least 8Mi, or `none`: it lies on the disk of `state_dir` without a bound. As
  /// root only: the workspace is then a file system of its own in a file that grows up to that size.
  std::string workspace_size_limit = "none";
  bool require_limits = false;       ///< Refuse what can not be limited.
  std::string cgroup_parent = {};    ///< Empty: found. A path below the cgroup mount.
  bool allow_image_mismatch = true;  ///< Host root accepts any image name and records it.
  std::uint32_t stop_timeout_secs = 10;
  std::string slots_dir = "/run/openshell/uid-slots";  ///< One fixed place per host, so that two gateways never share an id; tests move it.
};

/// How this host can run sandboxes, best first; found out by doing it in a child process.
enum class LaunchMode {
  kRoot,            ///< A kernel uid per sandbox; all namespaces but the user namespace are the host's.
  kSubordinateIds,  ///< Without root, with ids of /etc/subuid.
  kSingleId,        ///< Without root: the caller's own kernel uid and groups.
};

/// `root`, `subordinate`, `single`.
std::string_view to_string(LaunchMode mode) noexcept;

/// Probes the host, re-adopts what still runs, removes what is left over, and starts watching. FAILED_PRECONDITION where this host can run
/// no sandboxes (the message says what was tried and what to change) or a directory does not fit.
absl::StatusOr<std::unique_ptr<ComputeDriver>> make_process_driver(ProcessDriverOptions options);

}  // namespace openshell::drivers
