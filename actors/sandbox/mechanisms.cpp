#include "actors/sandbox/mechanisms.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace openshell::sandbox {

absl::StatusOr<Mechanisms> start_mechanisms(isolation::Posture posture, std::vector<std::uint16_t> reserved_ports) {
  Mechanisms m;
  m.posture = std::move(posture);
  m.reaper = std::make_unique<isolation::ChildReaper>();
  isolation::Launcher::Options launch;
  launch.landlock = m.posture.landlock;
  launch.notify.notify_getpeername = !m.posture.anyip;
  launch.notify.signals = m.posture.landlock.scopes_signals() ? isolation::SignalMode::LandlockScope : isolation::SignalMode::Mediated;
  auto launcher = isolation::Launcher::start(launch, *m.reaper);
  if (!launcher.ok()) return launcher.status();
  m.launcher = std::move(*launcher);
  m.decider = std::make_unique<ActorDecider>();
  isolation::Broker::Options broker_options;
  broker_options.cancellation = m.launcher->cancellation();
  broker_options.peer_names = m.posture.anyip ? isolation::PeerNames::AnyIp : isolation::PeerNames::Notified;
  broker_options.reserved_ports = std::move(reserved_ports);
  auto broker = isolation::Broker::start(broker_options, m.launcher->take_listener(), *m.decider);
  if (!broker.ok()) return broker.status();
  m.broker = std::move(*broker);
  m.tree = std::make_shared<isolation::ProcessTree>();
  isolation::QualificationInputs inputs{*m.launcher, *m.broker, m.posture.landlock};
  inputs.anyip = m.posture.anyip;
  auto audit = isolation::qualify(inputs);
  if (!audit.ok()) return audit.status();
  m.audit = std::move(*audit);
  return m;
}

boundary::BackendAudit audit_of(const isolation::AuditEvidence& e) {
  boundary::BackendAudit audit;
  audit.capabilities = {e.capabilities.inheritable, e.capabilities.permitted, e.capabilities.effective, e.capabilities.bounding,
                        e.capabilities.ambient};
  audit.no_new_privileges = e.no_new_privileges;
  audit.sandbox_dumpable = e.sandbox_dumpable;
  audit.child_dumpable = e.child_dumpable;
  audit.core_limit_zero = e.core_limit_zero;
  audit.native_architecture = e.native_architecture;
  audit.kernel_release = e.kernel_release;
  const auto& s = e.seccomp;
  audit.seccomp = {s.new_listener,     s.notification_round_trip, s.id_validation,     s.addfd_send,   s.retained_socket_operation,
                   s.proc_fd_identity, s.task_memory_read,        s.task_memory_write, s.cancellation, s.task_memory_writes_disabled};
  audit.landlock_abi = static_cast<std::uint32_t>(std::max(0, e.landlock_abi));
  audit.landlock_allow_deny = e.landlock_allow_deny;
  audit.udp_dns_round_trip = e.udp_dns_round_trip;
  audit.tcp_dns_round_trip = e.tcp_dns_round_trip;
  audit.tcp_allow_round_trip = e.tcp_allow_round_trip;
  audit.tcp_deny_round_trip = e.tcp_deny_round_trip;
  return audit;
}

absl::Status check_identity(const isolation::Posture& posture, const boundary::WorkloadIdentity& identity, bool extra_groups) {
  if (posture.uid != identity.uid || posture.gid != identity.gid) {
    return absl::FailedPreconditionError(
        fmt::format("sandbox identity {}:{} does not match resolved workload {}:{}", posture.uid, posture.gid, identity.uid, identity.gid));
  }
  std::vector<std::uint32_t> actual(posture.groups.begin(), posture.groups.end());
  const bool same =
      extra_groups ? std::includes(actual.begin(), actual.end(), identity.supplementary_gids.begin(), identity.supplementary_gids.end())
                   : actual == identity.supplementary_gids;
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("sandbox supplementary groups [{}] do not match [{}]", fmt::join(actual, ","),
                                                   fmt::join(identity.supplementary_gids, ",")));
}

}  // namespace openshell::sandbox
