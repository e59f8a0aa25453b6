// Internal to this folder: how each type of control.hpp looks in JSON.
#pragma once

#include "isolation/boundary/control.hpp"
#include "isolation/boundary/json.hpp"

namespace openshell::boundary {

inline const auto& names_of(NetworkMode) {
  static constexpr std::array<std::string_view, 3> names{"block", "proxy", "allow"};
  return names;
}
inline const auto& names_of(LandlockMode) {
  static constexpr std::array<std::string_view, 2> names{"best_effort", "hard_requirement"};
  return names;
}
inline const auto& names_of(ProcessSignal) {
  static constexpr std::array<std::string_view, 4> names{"term", "kill", "int", "hup"};
  return names;
}
inline const auto& names_of(ErrorKind) {
  static constexpr std::array<std::string_view, 5> names{"invalid", "denied", "unavailable", "terminated", "process"};
  return names;
}
inline const auto& names_of(PeerNames) {
  static constexpr std::array<std::string_view, 2> names{"notified", "anyip"};
  return names;
}

template <class F>
void fields(F& f, OuterFence& x) {
  f("generation", x.generation), f("established", x.established), f("evidence_digest", x.evidence_digest);
}
template <class F>
void fields(F& f, WorkloadIdentity& x) {
  f("uid", x.uid), f("gid", x.gid), f("supplementary_gids", x.supplementary_gids), f("source", x.source),
      f("resource_digest", x.resource_digest);
}
template <class F>
void fields(F& f, BoundaryPolicy& x) {
  f("version", x.version), f("read_only", x.read_only), f("read_write", x.read_write), f("include_workdir", x.include_workdir);
  f("network", x.network), f("proxy_addr", x.proxy_addr), f("landlock", x.landlock), f("run_as_user", x.run_as_user),
      f("run_as_group", x.run_as_group);
}
template <class F>
void fields(F& f, AgentSpec& x) {
  f("program", x.program), f("args", x.args), f("workdir", x.workdir), f("timeout_secs", x.timeout_secs), f("interactive", x.interactive);
}
template <class F>
void fields(F& f, ShellSpec& x) {
  f("command", x.command), f("login", x.login);
}
template <class F>
void fields(F& f, ExecSpec& x) {
  f("program", x.program), f("args", x.args), f("env", x.env), f("workdir", x.workdir), f("pty", x.pty), f("shell", x.shell);
  f("runtime_helper", x.runtime_helper);
}
template <class F>
void fields(F& f, RetainedOutput& x) {
  f("first_sequence", x.first_sequence), f("next_sequence", x.next_sequence), f("truncated", x.truncated);
}
template <class F>
void fields(F& f, Snapshot& x) {
  f("generation", x.generation), f("processes", x.processes);
}
template <class F>
void fields(F& f, Executable& x) {
  f("path", x.path), f("digest", x.digest);
}
template <class F>
void fields(F& f, SocketFacts& x) {
  f("socket_cookie", x.socket_cookie), f("nonblocking", x.nonblocking), f("process_generation", x.process_generation);
}
template <class F>
void fields(F& f, Timing& x) {
  f("notification_to_queue_us", x.notification_to_queue_us), f("queue_wait_us", x.queue_wait_us);
}

// Shapes that are no plain object.
internal::json::value encode_json(const ExitStatus& x);
absl::Status decode_json(const internal::json::value& value, ExitStatus& x, const std::string& where);
internal::json::value encode_json(const ProcessSummary& x);
absl::Status decode_json(const internal::json::value& value, ProcessSummary& x, const std::string& where);
internal::json::value encode_json(const ProcessIdentity& x);
absl::Status decode_json(const internal::json::value& value, ProcessIdentity& x, const std::string& where);

// Requests.
template <class F>
void fields(F&, DiscoverPolicy&) {}
template <class F>
void fields(F& f, Attach& x) {
  f("supervisor_instance_id", x.supervisor_instance_id), f("policy", x.policy), f("resource_claims", x.resource_claims);
}
template <class F>
void fields(F&, Confirm&) {}
template <class F>
void fields(F&, ProbeProviderFiles&) {}
template <class F>
void fields(F& f, StartAgent& x) {
  f("sandbox_id", x.sandbox_id), f("spec", x.spec), f("policy", x.policy), f("ca_cert", x.ca_cert), f("ca_bundle", x.ca_bundle);
  f("provider_env_revision", x.provider_env_revision), f("provider_env", x.provider_env), f("provider_files", x.provider_files);
}
template <class F>
void fields(F& f, UpdateProviderEnvironment& x) {
  f("generation", x.generation), f("revision", x.revision), f("provider_env", x.provider_env), f("provider_files", x.provider_files);
}
template <class F>
void fields(F& f, AttachProcess& x) {
  f("process_id", x.process_id);
}
template <class F>
void fields(F& f, Wait& x) {
  f("process_id", x.process_id);
}
template <class F>
void fields(F& f, Signal& x) {
  f("process_id", x.process_id), f("signal", x.signal);
}
template <class F>
void fields(F& f, ExecSignal& x) {
  f("process_id", x.process_id), f("signal", x.signal);
}
template <class F>
void fields(F& f, Terminate& x) {
  f("process_id", x.process_id);
}
template <class F>
void fields(F&, TerminateBoundary&) {}
template <class F>
void fields(F& f, Exec& x) {
  f("spec", x.spec);  // the expiry stands in the envelope
}
template <class F>
void fields(F& f, Resize& x) {
  f("process_id", x.process_id), f("cols", x.cols), f("rows", x.rows);
}
template <class F>
void fields(F& f, LoopbackConnect& x) {
  f("host", x.host), f("port", x.port);
}
template <class F>
void fields(F&, AcceptNetwork&) {}
template <class F>
void fields(F&, OpenMediation&) {}
template <class F>
void fields(F& f, Introspect& x) {
  f("max_actors", x.max_actors), f("max_bytes", x.max_bytes);
}

template <class F>
void fields(F& f, ResolveLinks& x) {
  f("paths", x.paths);
}

// Responses.
template <class F>
void fields(F& f, Error& x) {
  f("kind", x.kind), f("message", x.message);
}
template <class F>
void fields(F& f, ImagePolicy& x) {
  f("yaml", x.yaml), f("invalid", x.invalid);
}
template <class F>
void fields(F& f, Attached& x) {
  f("snapshot", x.snapshot);
}
template <class F>
void fields(F& f, Property& x) {
  f("enforced", x.enforced), f("mechanism", x.mechanism);
}
template <class F>
void fields(F& f, Properties& x) {
  f("filesystem_confinement", x.filesystem_confinement), f("egress_interception", x.egress_interception);
  f("request_attribution", x.request_attribution), f("privilege_floor", x.privilege_floor);
}
template <class F>
void fields(F& f, BackendAudit::Capabilities& x) {
  f("inheritable", x.inheritable), f("permitted", x.permitted), f("effective", x.effective), f("bounding", x.bounding),
      f("ambient", x.ambient);
}
template <class F>
void fields(F& f, BackendAudit::Seccomp& x) {
  f("new_listener", x.new_listener), f("notification_round_trip", x.notification_round_trip), f("id_validation", x.id_validation);
  f("addfd_send", x.addfd_send), f("retained_socket_operation", x.retained_socket_operation), f("proc_fd_identity", x.proc_fd_identity);
  f("task_memory_read", x.task_memory_read), f("task_memory_write", x.task_memory_write), f("cancellation", x.cancellation);
  f("task_memory_writes_disabled", x.task_memory_writes_disabled);
}
template <class F>
void fields(F& f, BackendAudit& x) {
  f("capabilities", x.capabilities), f("no_new_privileges", x.no_new_privileges), f("sandbox_dumpable", x.sandbox_dumpable);
  f("child_dumpable", x.child_dumpable), f("core_limit_zero", x.core_limit_zero), f("native_architecture", x.native_architecture);
  f("kernel_release", x.kernel_release), f("seccomp", x.seccomp), f("landlock_abi", x.landlock_abi),
      f("landlock_allow_deny", x.landlock_allow_deny);
  f("udp_dns_round_trip", x.udp_dns_round_trip), f("tcp_dns_round_trip", x.tcp_dns_round_trip),
      f("tcp_allow_round_trip", x.tcp_allow_round_trip);
  f("tcp_deny_round_trip", x.tcp_deny_round_trip);
}
internal::json::value encode_json(const Confirmation& x);
absl::Status decode_json(const internal::json::value& value, Confirmation& x, const std::string& where);
template <class F>
void fields(F& f, Confirmed& x) {
  f("confirmation", x.confirmation);
}
template <class F>
void fields(F&, ProviderFilesSupported&) {}
template <class F>
void fields(F& f, Started& x) {
  f("process_id", x.process_id), f("provider_env_revision", x.provider_env_revision),
      f("provider_env_generation", x.provider_env_generation);
}
template <class F>
void fields(F& f, ProviderEnvironmentUpdated& x) {
  f("revision", x.revision), f("generation", x.generation), f("applied", x.applied);
}
template <class F>
void fields(F& f, ProcessAttached& x) {
  f("terminal", x.terminal);
}
template <class F>
void fields(F& f, Exited& x) {
  f("status", x.status);
}
template <class F>
void fields(F&, Signaled&) {}
template <class F>
void fields(F&, Terminated&) {}
template <class F>
void fields(F&, BoundaryTerminated&) {}
template <class F>
void fields(F& f, ExecStarted& x) {
  f("process_id", x.process_id), f("pty", x.pty);
}
template <class F>
void fields(F&, Resized&) {}
template <class F>
void fields(F&, PortConnected&) {}
template <class F>
void fields(F& f, NetworkConnected& x) {
  f("identity", x.identity), f("destination", x.destination), f("socket", x.socket), f("policy_generation", x.policy_generation),
      f("timing", x.timing);
}
template <class F>
void fields(F&, MediationReady&) {}
template <class F>
void fields(F& f, ActorReport& x) {
  f("id", x.id), f("parent", x.parent), f("kind", x.kind), f("summary", x.summary), f("mailbox", x.mailbox), f("waiting", x.waiting),
      f("handled", x.handled);
  f("failed", x.failed), f("restarts", x.restarts), f("oldest_ms", x.oldest_ms), f("last_error", x.last_error), f("rates", x.rates);
}
template <class F>
void fields(F& f, Introspected& x) {
  f("epoch", x.epoch), f("seq", x.seq), f("left_out", x.left_out), f("actors", x.actors);
}
template <class F>
void fields(F& f, LinksResolved& x) {
  f("targets", x.targets), f("refused", x.refused);
}

}  // namespace openshell::boundary
