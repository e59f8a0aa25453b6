// Requests and responses of the channel as types, and their one JSON form. Both ends use this: the supervisor encodes requests and decodes
// responses, `openshell-sandbox` the other way round. Every field is always sent; an unknown, missing or ill-typed field is refused.
// Sandbox Protocol 1.0.
#pragma once

#include "isolation/boundary/fence.hpp"
#include "isolation/boundary/launch_material.hpp"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace openshell::boundary {

inline constexpr std::size_t kMaxErrorMessageBytes = 1'024;  ///< longer messages are cut

// ---- shared parts
// ---------------------------------------------------------------------------------------------------------------------------------

enum class NetworkMode { block, proxy, allow };
enum class LandlockMode { best_effort, hard_requirement };

/// The static part of the admitted policy, as far as the sandbox enforces it. Fixed for the generation by the first attach.
struct BoundaryPolicy {
  std::uint32_t version = 1;
  std::vector<std::string> read_only;   ///< absolute paths
  std::vector<std::string> read_write;  ///< absolute paths
  bool include_workdir = false;         ///< the work directory is writable too
  NetworkMode network = NetworkMode::proxy;
  std::optional<std::string> proxy_addr;
  LandlockMode landlock = LandlockMode::best_effort;
  std::optional<std::string> run_as_user;
  std::optional<std::string> run_as_group;
  friend bool operator==(const BoundaryPolicy&, const BoundaryPolicy&) = default;
};

/// What main runs. An empty program is the image's login shell with `-l`; `args` must then be empty.
struct AgentSpec {
  std::string program;
  std::vector<std::string> args;
  std::optional<std::string> workdir;
  std::uint64_t timeout_secs = 0;  ///< 0: none
  bool interactive = false;        ///< with a controlling terminal, else three pipes
  friend bool operator==(const AgentSpec&, const AgentSpec&) = default;
};

/// `shell{command, login}` of an exec: the image's shell with `-lc` (login) or `-c` and the command; without a command a shell on stdin.
struct ShellSpec {
  std::optional<std::string> command;
  bool login = false;
  friend bool operator==(const ShellSpec&, const ShellSpec&) = default;
};

struct ExecSpec {
  std::string program;  ///< empty when `shell` or `runtime_helper` is given
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
  std::optional<std::string> workdir;
  bool pty = false;
  std::optional<ShellSpec> shell;
  std::optional<std::string> runtime_helper;  ///< "sftp"
  friend bool operator==(const ExecSpec&, const ExecSpec&) = default;
};

enum class ProcessSignal { term, kill, interrupt, hangup };  ///< "term", "kill", "int", "hup"

/// `{"kind":"exited"|"signaled","value":n}`; also the payload of process frame 3.
struct ExitStatus {
  bool signaled = false;
  std::int32_t value = 0;  ///< exit code 0..255, or signal number
  /// 0..255; 128+n for a signal.
  [[nodiscard]] int code() const noexcept { return signaled ? 128 + value : value; }
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

[[nodiscard]] std::string encode_exit_status(const ExitStatus& status);
[[nodiscard]] absl::StatusOr<ExitStatus> decode_exit_status(std::string_view json);

struct RetainedOutput {
  std::uint64_t first_sequence = 0;  ///< of the oldest event still held
  std::uint64_t next_sequence = 0;   ///< of the event to come
  bool truncated = false;            ///< events before first_sequence were dropped
  friend bool operator==(const RetainedOutput&, const RetainedOutput&) = default;
};

struct ProcessSummary {
  std::string process_id;
  bool main = false;  ///< kind "main", else "exec"
  bool terminal = false;
  std::optional<ExitStatus> status;
  RetainedOutput retained_output;
  friend bool operator==(const ProcessSummary&, const ProcessSummary&) = default;
};

/// What an attach learns of the generation; processes sorted by id.
struct Snapshot {
  std::string generation;
  std::vector<ProcessSummary> processes;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

struct Executable {
  std::string path;
  std::optional<std::string> digest;  ///< SHA-256, hex
  friend bool operator==(const Executable&, const Executable&) = default;
};

/// Who opened a connection. A failed identity is never mixed with a resolved one.
struct ResolvedIdentity {
  Executable executable;
  std::vector<Executable> ancestors;  ///< parent first, up to the sandbox
  std::vector<std::string> cmdline_paths;
  friend bool operator==(const ResolvedIdentity&, const ResolvedIdentity&) = default;
};
struct FailedIdentity {
  std::string message;
  friend bool operator==(const FailedIdentity&, const FailedIdentity&) = default;
};
using ProcessIdentity = std::variant<ResolvedIdentity, FailedIdentity>;

struct SocketFacts {
  std::uint64_t socket_cookie = 0;
  bool nonblocking = false;
  std::uint64_t process_generation = 0;  ///< process id of the opener in its own namespace, for people; 0: not known
  friend bool operator==(const SocketFacts&, const SocketFacts&) = default;
};
struct Timing {
  std::uint64_t notification_to_queue_us = 0;
  std::uint64_t queue_wait_us = 0;
  friend bool operator==(const Timing&, const Timing&) = default;
};

// ---- requests
// -------------------------------------------------------------------------------------------------------------------------------------

struct DiscoverPolicy {
  friend bool operator==(const DiscoverPolicy&, const DiscoverPolicy&) = default;
};
struct Attach {
  std::string supervisor_instance_id;  ///< UUID, canonical lower case, not nil
  BoundaryPolicy policy;
  Claims resource_claims;
  friend bool operator==(const Attach&, const Attach&) = default;
};
struct Confirm {
  friend bool operator==(const Confirm&, const Confirm&) = default;
};
struct ProbeProviderFiles {
  friend bool operator==(const ProbeProviderFiles&, const ProbeProviderFiles&) = default;
};
struct StartAgent {
  std::string sandbox_id;
  AgentSpec spec;
  BoundaryPolicy policy;
  std::optional<std::string> ca_cert;    ///< PEM of the interception CA; certificate and bundle come together or not at all
  std::optional<std::string> ca_bundle;  ///< PEM: the interception CA and the system roots
  std::uint64_t provider_env_revision = 0;
  Environment provider_env;
  std::map<std::string, std::string> provider_files;  ///< path below /run/openshell/providers -> text
  friend bool operator==(const StartAgent&, const StartAgent&) = default;
};
struct UpdateProviderEnvironment {
  std::uint64_t generation = 0;  ///< the supervisor's counter, +1 a publication
  std::uint64_t revision = 0;    ///< the gateway's, opaque
  Environment provider_env;
  std::map<std::string, std::string> provider_files;
  friend bool operator==(const UpdateProviderEnvironment&, const UpdateProviderEnvironment&) = default;
};
struct AttachProcess {
  std::string process_id;
  friend bool operator==(const AttachProcess&, const AttachProcess&) = default;
};
struct Wait {
  std::string process_id;
  friend bool operator==(const Wait&, const Wait&) = default;
};
struct Signal {  ///< to main's process group
  std::string process_id;
  ProcessSignal signal = ProcessSignal::term;
  friend bool operator==(const Signal&, const Signal&) = default;
};
struct ExecSignal {  ///< to an exec's process group
  std::string process_id;
  ProcessSignal signal = ProcessSignal::term;
  friend bool operator==(const ExecSignal&, const ExecSignal&) = default;
};
struct Terminate {  ///< the whole tree of the process; already gone counts as done
  std::string process_id;
  friend bool operator==(const Terminate&, const Terminate&) = default;
};
struct TerminateBoundary {
  friend bool operator==(const TerminateBoundary&, const TerminateBoundary&) = default;
};
struct Exec {
  std::uint64_t expires_at_unix_ms = 0;  ///< stands in the envelope; admission only, never limits a running process
  ExecSpec spec;
  friend bool operator==(const Exec&, const Exec&) = default;
};
struct Resize {
  std::string process_id;
  std::uint16_t cols = 0;
  std::uint16_t rows = 0;
  friend bool operator==(const Resize&, const Resize&) = default;
};
struct LoopbackConnect {
  std::string host;  ///< IP address
  std::uint16_t port = 0;
  friend bool operator==(const LoopbackConnect&, const LoopbackConnect&) = default;
};
struct AcceptNetwork {
  friend bool operator==(const AcceptNetwork&, const AcceptNetwork&) = default;
};
struct OpenMediation {  ///< on `Mediate` only
  friend bool operator==(const OpenMediation&, const OpenMediation&) = default;
};
struct Introspect {
  std::uint16_t max_actors = 128;    ///< 1..128
  std::uint32_t max_bytes = 65'536;  ///< 1,024..65,536: the encoded response
  friend bool operator==(const Introspect&, const Introspect&) = default;
};

/// Which of these paths are symbolic links, and where they lead inside the workload's root: rules may name a program by a link, while the
/// kernel names what runs. Answered before attach too.
struct ResolveLinks {
  static constexpr std::size_t kMaxPaths = 1'024;
  std::vector<std::string> paths;  ///< absolute, at most kMaxPaths
  friend bool operator==(const ResolveLinks&, const ResolveLinks&) = default;
};

using Request = std::variant<DiscoverPolicy, Attach, Confirm, ProbeProviderFiles, StartAgent, UpdateProviderEnvironment, AttachProcess,
                             Wait, Signal, ExecSignal, Terminate, TerminateBoundary, Exec, Resize, LoopbackConnect, AcceptNetwork,
                             OpenMediation, Introspect, ResolveLinks>;

/// The `operation` word: "discover_policy", "attach" ...
[[nodiscard]] std::string_view operation_name(const Request& request);

/// The JSON of a whole request frame, its digest included. `request_id` is a UUID; a replay of the same operation uses the same one.
[[nodiscard]] std::string encode_request(std::string_view request_id, const Request& request);

/// SHA-256 of the canonical form: keys sorted by bytes, compact, controls escaped, for exec with `exec_expires_at_unix_ms` inside.
[[nodiscard]] std::string payload_digest(const Request& request);

/// What a receiver needs before it looks at the operation.
struct RequestEnvelope {
  std::string request_id;
  std::string payload_digest;  ///< verified
  Request request;
};

/// A request that could not be taken, with the id to answer to (empty where none could be read: the stream is then ended without an
/// answer).
struct RefusedRequest {
  std::string request_id;
  absl::Status status;  ///< InvalidArgument -> "invalid"; PermissionDenied -> "denied" (digest mismatch)
};

/// Decodes a request frame, checks shape and digest. Never throws, whatever the bytes.
[[nodiscard]] std::variant<RequestEnvelope, RefusedRequest> decode_request(std::string_view json);

// ---- responses
// ------------------------------------------------------------------------------------------------------------------------------------

enum class ErrorKind { invalid, denied, unavailable, terminated, process };
struct Error {
  ErrorKind kind = ErrorKind::invalid;
  std::string message;  ///< no secret, at most kMaxErrorMessageBytes
  friend bool operator==(const Error&, const Error&) = default;
};

struct ImagePolicy {
  std::optional<std::string> yaml;
  bool invalid = false;
  friend bool operator==(const ImagePolicy&, const ImagePolicy&) = default;
};
struct Attached {
  Snapshot snapshot;
  friend bool operator==(const Attached&, const Attached&) = default;
};

struct Property {
  bool enforced = false;
  std::string mechanism;  ///< "landlock-v<abi>", "seccomp-notify", "seccomp-notify-procfs", "linux-capability-free"
  friend bool operator==(const Property&, const Property&) = default;
};
struct Properties {
  Property filesystem_confinement, egress_interception, request_attribution, privilege_floor;
  friend bool operator==(const Properties&, const Properties&) = default;
};

/// What the sandbox measured of itself, at its start and again at each confirm. Masks are those of /proc/self/status.
struct BackendAudit {
  struct Capabilities {
    std::uint64_t inheritable = 0, permitted = 0, effective = 0, bounding = 0, ambient = 0;
    friend bool operator==(const Capabilities&, const Capabilities&) = default;
  };
  struct Seccomp {
    bool new_listener = false, notification_round_trip = false, id_validation = false, addfd_send = false,
         retained_socket_operation = false, proc_fd_identity = false, task_memory_read = false, task_memory_write = false,
         cancellation = false, task_memory_writes_disabled = false;
    friend bool operator==(const Seccomp&, const Seccomp&) = default;
  };
  Capabilities capabilities;
  bool no_new_privileges = false, sandbox_dumpable = true, child_dumpable = false, core_limit_zero = false;
  bool native_architecture = false;
  std::string kernel_release;
  Seccomp seccomp;
  std::uint32_t landlock_abi = 0;
  bool landlock_allow_deny = false, udp_dns_round_trip = false, tcp_dns_round_trip = false, tcp_allow_round_trip = false,
       tcp_deny_round_trip = false;
  friend bool operator==(const BackendAudit&, const BackendAudit&) = default;
};

/// The four properties that an audit proves. The supervisor computes them itself and requires equality with what the sandbox claims.
/// FailedPrecondition "native Linux sandbox audit evidence is incomplete" with the first missing fact.
[[nodiscard]] absl::StatusOr<Properties> properties_of(const BackendAudit& audit);

struct Confirmation {
  std::string generation;
  WorkloadIdentity identity;
  Properties properties;
  std::string authenticated_supervisor;  ///< the instance id pinned by attach
  std::string session_id;
  OuterFence outer_fence;
  bool runtime_exit_terminates_workload = false;
  Claims resource_claims;
  std::optional<BackendAudit> backend_audit;  ///< absent when the audit has another shape than ours (an external backend's is opaque)
  friend bool operator==(const Confirmation&, const Confirmation&) = default;
};
struct Confirmed {
  Confirmation confirmation;
  friend bool operator==(const Confirmed&, const Confirmed&) = default;
};
struct ProviderFilesSupported {
  friend bool operator==(const ProviderFilesSupported&, const ProviderFilesSupported&) = default;
};
struct Started {
  std::string process_id;
  std::uint64_t provider_env_revision = 0;
  std::uint64_t provider_env_generation = 0;
  friend bool operator==(const Started&, const Started&) = default;
};
struct ProviderEnvironmentUpdated {
  std::uint64_t revision = 0;
  std::uint64_t generation = 0;
  bool applied = false;  ///< false: an older or equal generation; the fields are then the installed ones
  friend bool operator==(const ProviderEnvironmentUpdated&, const ProviderEnvironmentUpdated&) = default;
};
struct ProcessAttached {
  bool terminal = false;
  friend bool operator==(const ProcessAttached&, const ProcessAttached&) = default;
};
struct Exited {
  ExitStatus status;
  friend bool operator==(const Exited&, const Exited&) = default;
};
struct Signaled {
  friend bool operator==(const Signaled&, const Signaled&) = default;
};
struct Terminated {
  friend bool operator==(const Terminated&, const Terminated&) = default;
};
struct BoundaryTerminated {
  friend bool operator==(const BoundaryTerminated&, const BoundaryTerminated&) = default;
};
struct ExecStarted {
  std::string process_id;
  bool pty = false;
  friend bool operator==(const ExecStarted&, const ExecStarted&) = default;
};
struct Resized {
  friend bool operator==(const Resized&, const Resized&) = default;
};
struct PortConnected {
  friend bool operator==(const PortConnected&, const PortConnected&) = default;
};
/// An open of the workload, handed to the supervisor for its decision (process frame 5).
struct NetworkConnected {
  ProcessIdentity identity;
  std::string destination;  ///< "203.0.113.10:443", "[2001:db8::5]:443"
  SocketFacts socket;
  std::uint64_t policy_generation = 0;
  Timing timing;
  friend bool operator==(const NetworkConnected&, const NetworkConnected&) = default;
};
struct MediationReady {
  friend bool operator==(const MediationReady&, const MediationReady&) = default;
};
/// One actor of the sandbox as it last reported. Untrusted at the supervisor: shown, used for nothing.
struct ActorReport {
  std::string id, parent, kind, summary;
  std::uint64_t mailbox = 0, waiting = 0, handled = 0, failed = 0, restarts = 0, oldest_ms = 0;
  std::string last_error;
  std::map<std::string, double> rates;
  friend bool operator==(const ActorReport&, const ActorReport&) = default;
};
struct Introspected {
  std::string epoch;
  std::uint64_t seq = 0;
  std::uint32_t left_out = 0;
  std::vector<ActorReport> actors;
  friend bool operator==(const Introspected&, const Introspected&) = default;
};

/// Of the paths that were asked: those that are links, and those whose link is not followed, with the reason. A path in neither is no link.
struct LinksResolved {
  std::map<std::string, std::string> targets;  ///< real path, nothing of which the workload can rewrite
  std::map<std::string, std::string> refused;
  friend bool operator==(const LinksResolved&, const LinksResolved&) = default;
};

using Response = std::variant<Error, ImagePolicy, Attached, Confirmed, ProviderFilesSupported, Started, ProviderEnvironmentUpdated,
                              ProcessAttached, Exited, Signaled, Terminated, BoundaryTerminated, ExecStarted, Resized, PortConnected,
                              NetworkConnected, MediationReady, Introspected, LinksResolved>;

[[nodiscard]] std::string_view result_name(const Response& response);
[[nodiscard]] std::string encode_response(std::string_view request_id, const Response& response);

struct ResponseEnvelope {
  std::string request_id;
  Response response;
};
/// InvalidArgument naming the field when the JSON is not exactly a response of this protocol. Never throws.
[[nodiscard]] absl::StatusOr<ResponseEnvelope> decode_response(std::string_view json);

/// "invalid", "denied" ... and back; nullopt for another word.
[[nodiscard]] std::string_view error_kind_name(ErrorKind kind);

// ---- streams
// --------------------------------------------------------------------------------------------------------------------------------------

/// The supervisor's answer to one open (process frame 5): `"RelayReady"` or `{"Denied": "..."}`.
enum class OpenDecision {
  relay_ready,
  policy_denied,
  identity_unavailable,
  invalid_destination,
  resource_exhausted,
  mediation_unavailable,
  relay_handover  ///< allowed, and the relay socket itself is to be passed over the hand-over connection (socket_passing.hpp)
};
[[nodiscard]] std::string encode_open_decision(OpenDecision decision);
[[nodiscard]] absl::StatusOr<OpenDecision> decode_open_decision(std::string_view json);

/// A DNS question of the workload (mediation frame 5). `request` is the message as received, over TCP with its two length bytes.
struct DnsQuestion {
  std::string request;
  bool tcp = false;
  ProcessIdentity identity;
  Timing timing;
  friend bool operator==(const DnsQuestion&, const DnsQuestion&) = default;
};
[[nodiscard]] std::string encode_dns_question(const DnsQuestion& question);
[[nodiscard]] absl::StatusOr<DnsQuestion> decode_dns_question(std::string_view json);

/// The answer (mediation frame 6): a DNS message in the form of its question, or an error, upon which the question is dropped.
using DnsAnswer = std::variant<std::string, absl::Status>;
[[nodiscard]] std::string encode_dns_answer(const DnsAnswer& answer);
[[nodiscard]] absl::StatusOr<DnsAnswer> decode_dns_answer(std::string_view json);

}  // namespace openshell::boundary
