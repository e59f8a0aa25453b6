// Measured proof that this sandbox is what it says: capability masks read back, filters and Landlock tried by a forked, fully confined
// child, each broker path run once. The result is the `backend_audit` of Sandbox Protocol 1.0. Nothing here is assumed or configured.
// Requirements.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "isolation/broker.hpp"
#include "isolation/landlock.hpp"
#include "isolation/launcher.hpp"

namespace openshell::isolation {

struct CapabilityMasks {
  std::uint64_t inheritable = 0, permitted = 0, effective = 0, bounding = 0, ambient = 0;
  [[nodiscard]] bool empty() const noexcept { return (inheritable | permitted | effective | bounding | ambient) == 0; }
};

struct SeccompEvidence {
  bool new_listener = false, notification_round_trip = false, id_validation = false, addfd_send = false, retained_socket_operation = false;
  bool proc_fd_identity = false, task_memory_read = false, task_memory_write = false, cancellation = false,
       task_memory_writes_disabled = false;
};

/// Field by field the `backend_audit` object; encode every field under its own name.
struct AuditEvidence {
  CapabilityMasks capabilities;
  bool no_new_privileges = false;
  bool sandbox_dumpable = true;
  bool child_dumpable = false;
  bool core_limit_zero = false;
  bool native_architecture = false;
  std::string kernel_release;
  SeccompEvidence seccomp;
  int landlock_abi = 0;
  bool landlock_allow_deny = false;
  bool udp_dns_round_trip = false, tcp_dns_round_trip = false, tcp_allow_round_trip = false, tcp_deny_round_trip = false;

  // Not part of the audit object; for the probe output and logs.
  SignalMode signal_mode = SignalMode::LandlockScope;
  CancellationMode cancellation_mode = CancellationMode::Killable;
  bool anyip = false;
  bool loopback_confinement = false;  ///< SO_BINDTODEVICE lo is accepted and read back

  /// OK, or FailedPrecondition that names the fields that fall short: all masks zero, dumpable false/true, ABI 3, cancellation or writes
  /// disabled, all other flags true.
  [[nodiscard]] absl::Status complete() const;
};

/// What holds before any thread is started; run it first in main. FailedPrecondition with a sentence per finding: a capability left, uid 0,
/// a Yama scope of 2 or more, a missing kernel feature, an occupied SIGUSR2.
struct Posture {
  CapabilityMasks capabilities;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  ///< sorted, without the primary
  LandlockFeatures landlock;
  bool loopback_only = false;  ///< the network namespace has no interface but lo
  bool anyip = false;          ///< a TEST-NET address can be bound and reached
};
absl::StatusOr<Posture> read_posture();
/// FailedPrecondition for uid or gid 0, any capability, or a Yama scope of 2 or more.
absl::Status check_posture(const Posture& posture);

/// Makes the process as private as it has to be: no_new_privs, non-dumpable, RLIMIT_CORE 0, child subreaper, SIGUSR2 reserved. Before any
/// other thread.
absl::Status harden_self();

struct QualificationInputs {
  Launcher& launcher;
  Broker& broker;
  LandlockFeatures landlock;
  bool anyip = false;
  bool dns_is_served =
      false;  ///< true: a stub answers on 127.0.0.53:53 already (any answer counts); false: bound here for the time of the probe
  /// A file below /.openshell that this uid can read but for Landlock. Empty: the executable of this process, where it lies there.
  std::string protected_file;
};

/// Runs all probes, about 30 ms, while no workload process exists. Failures are false fields, not errors; an error means that a probe could
/// not be run at all.
absl::StatusOr<AuditEvidence> qualify(const QualificationInputs& inputs);

}  // namespace openshell::isolation
