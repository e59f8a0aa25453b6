// The outer fence of a sandbox, as the driver finds it on the waiting PID 1 before anything of the sandbox runs: collected, judged, written
// down and digested. Four guarantees, each given only if all of its checks passed; one that did not refuses the launch with its name.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "drivers/process/launch_plan.hpp"
#include "drivers/process/mount_plan.hpp"
#include "drivers/process/process_handle.hpp"
#include "isolation/boundary/fence.hpp"

namespace openshell::drivers::process {

/// A namespace by device and inode of its file in /proc/<pid>/ns.
struct NamespaceId {
  std::uint64_t device = 0, inode = 0;
  friend bool operator==(const NamespaceId&, const NamespaceId&) = default;
};

/// What was found. Every value goes into the native evidence.
struct FenceFacts {
  std::string generation;
  LaunchMode mode = LaunchMode::kRoot;
  ProcessMark init;
  std::string boot_id;
  bool ipv6 = true;
  std::map<std::string, NamespaceId> namespaces,
      own_namespaces;  ///< `net`, `mnt`, `pid`, `ipc`, `uts`, `cgroup`, `user`; of init, of the driver.
  std::uint32_t user_namespace_owner = 0;
  std::array<std::uint32_t, 4> uids{}, gids{};  ///< Real, effective, saved, file system; kernel numbers.
  std::vector<std::uint32_t> groups;
  std::array<std::uint64_t, 5> capabilities{};  ///< CapInh, CapPrm, CapEff, CapBnd, CapAmb
  bool no_new_privs = false;
  std::vector<std::string> devices;  ///< Entries of its /dev.
  std::vector<Mount> mounts;
  std::vector<std::string> held_namespaces;      ///< Namespaces of the sandbox that the driver or the monitor holds a descriptor of.
  NetworkFacts with_launcher, without_launcher;  ///< The network twice: while the launcher lives, and after its end.
  std::vector<std::string> outside_seen;         ///< Outside listeners that saw something.
  bool supervisor_exists = false;
};

/// What must be the case.
struct FenceExpectation {
  std::uint32_t kernel_uid = 0, kernel_gid = 0;
  std::vector<std::uint32_t> kernel_groups;
  std::uint32_t namespace_owner = 0;
  std::vector<ExpectedMount> mounts;
  std::uint32_t seen_uid = 0, seen_gid = 0;
  std::vector<std::uint32_t> seen_groups;
};

/// Reads everything about a process that does not need its network namespace. `monitor` is looked through for held namespaces too.
absl::StatusOr<FenceFacts> collect_facts(const ProcessMark& init, pid_t monitor);

/// Once more after the start: the same process in the same namespaces, with the same mounts and no more rights than before. OK too where it
/// has ended meanwhile, since then nothing is left to be fenced. FAILED_PRECONDITION names the difference.
absl::Status confirm_unchanged(const FenceFacts& before, const FenceExpectation& expected);

/// The four guarantees in order, or FAILED_PRECONDITION `<guarantee>: <what was found>`.
absl::StatusOr<std::vector<std::string>> judge(const FenceFacts& facts, const FenceExpectation& expected);

/// The native evidence: canonical JSON (keys sorted, no spaces) of driver, schema, workload and every fact.
std::string native_evidence(const FenceFacts& facts, const FenceExpectation& expected);

/// Whether each probe was refused. A refusal is the answer of a network in which nobody listens, so that very connection or datagram can
/// not arrive anywhere else later, and there is nothing to wait for.
bool all_refused(const NetworkFacts& network);

/// Listeners on the host's side that nothing from inside may reach: TCP and UDP on ephemeral ports of 127.0.0.1, ::1 and one other address
/// per family.
class OutsideListeners {
 public:
  static absl::StatusOr<OutsideListeners> open();
  [[nodiscard]] const std::vector<OutsideListener>& list() const { return listeners_; }
  /// Names those that saw a connection or a datagram. With `wait` only after kSilence, for what may still be under way.
  [[nodiscard]] std::vector<std::string> heard(bool wait) const;

  static constexpr int kSilenceMs = 200;  ///< milliseconds

 private:
  std::vector<OutsideListener> listeners_;
  std::vector<Descriptor> sockets_;
  std::vector<std::string> names_;
};

}  // namespace openshell::drivers::process
