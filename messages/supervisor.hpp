// The map of the supervisor: every actor of the process, every message it takes, from whom, and what comes back.
// Values first, then one alias an actor. Nothing here leaves the process, so no type is serialised.
#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "messages/introspection.hpp"
#include "messages/values.hpp"

namespace openshell::sandbox::v1 {
class SandboxPolicy;
}  // namespace openshell::sandbox::v1
namespace openshell::v1 {
class GetSandboxProviderEnvironmentResponse;
}  // namespace openshell::v1

namespace openshell::supervisor {

using accepted_atom = caf::atom_constant<caf::atom("accepted")>;
using admit_atom = caf::atom_constant<caf::atom("admit")>;
using analyse_atom = caf::atom_constant<caf::atom("analyse")>;
using append_atom = caf::atom_constant<caf::atom("append")>;
using applied_atom = caf::atom_constant<caf::atom("applied")>;
using close_atom = caf::atom_constant<caf::atom("close")>;
using config_atom = caf::atom_constant<caf::atom("config")>;
using done_atom = caf::atom_constant<caf::atom("done")>;
using endpoint_atom = caf::atom_constant<caf::atom("endpoint")>;
using environ_atom = caf::atom_constant<caf::atom("environ")>;
using event_atom = caf::atom_constant<caf::atom("event")>;
using exited_atom = caf::atom_constant<caf::atom("exited")>;
using finalize_atom = caf::atom_constant<caf::atom("finalize")>;
using flush_atom = caf::atom_constant<caf::atom("flush")>;
using install_atom = caf::atom_constant<caf::atom("install")>;
using link_atom = caf::atom_constant<caf::atom("link")>;
using lost_atom = caf::atom_constant<caf::atom("lost")>;
using nudge_atom = caf::atom_constant<caf::atom("nudge")>;
using publish_atom = caf::atom_constant<caf::atom("publish")>;
using pump_atom = caf::atom_constant<caf::atom("pump")>;
using read_atom = caf::atom_constant<caf::atom("read")>;
using ready_atom = caf::atom_constant<caf::atom("ready")>;
using renew_atom = caf::atom_constant<caf::atom("renew")>;
using reported_atom = caf::atom_constant<caf::atom("reported")>;
using revive_atom = caf::atom_constant<caf::atom("revive")>;
using run_atom = caf::atom_constant<caf::atom("run")>;
using start_atom = caf::atom_constant<caf::atom("start")>;
using stop_atom = caf::atom_constant<caf::atom("stop")>;
using submit_atom = caf::atom_constant<caf::atom("submit")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;
using wake_atom = caf::atom_constant<caf::atom("wake")>;

// ---- values
// ---------------------------------------------------------------------------------------------------------------------------------

enum class PolicySource : std::uint8_t { none, sandbox, global };

/// What a rejected live policy does to a running sandbox: deny everything, or keep what ran before.
enum class FailureMode : std::uint8_t { fail_closed, retain_last_valid };

struct SettingBytes {
  std::string bytes;
  friend bool operator==(const SettingBytes&, const SettingBytes&) = default;
};
using SettingValue = std::variant<std::string, bool, std::int64_t, SettingBytes>;

/// One answer of the gateway to a poll: the policy that is to run, and everything that identifies it. The identity is kept as it came and
/// never worked out from the policy's content. [ACK-01..04, ACK-11]
struct ConfigSnapshot {
  std::shared_ptr<const sandbox::v1::SandboxPolicy> policy;  ///< null: the gateway has none yet
  Revision version;
  std::string policy_hash;
  PolicySource source = PolicySource::none;
  std::uint64_t config_revision = 0;
  std::uint64_t provider_env_revision = 0;
  std::string provider_attachment_epoch;
  std::string workspace;
  FailureMode failure_mode = FailureMode::fail_closed;
  bool admitted = false;            ///< the gateway itself found the composition valid; false: activate nothing of it
  std::string configuration_error;  ///< the gateway's own bounded text where it did not
  std::string instance_id;          ///< the supervisor instance that the gateway knows: the fence of a registration
  std::map<std::string, SettingValue> settings;
};

/// The provider environment that belongs to one snapshot. Holds secrets: it is handed on as a whole and never printed.
struct ProviderEnvironment {
  std::uint64_t revision = 0;
  std::string attachment_epoch;
  std::string policy_hash;
  std::shared_ptr<const v1::GetSandboxProviderEnvironmentResponse> content;
};

/// A policy for the gateway to store. Its layers of providers (`_provider_*`) were taken out.
struct PolicyUpload {
  std::shared_ptr<const sandbox::v1::SandboxPolicy> policy;
};

enum class PolicyOutcome : std::uint8_t { loaded, failed };

/// Why a revision is acknowledged; decides the telemetry after the gateway took the report, nothing else.
enum class Acknowledgement : std::uint8_t { initial, unchanged, reloaded };

/// What became of one revision on this supervisor. `error` is the original construction error, empty when loaded. [ACK-05, ACK-10]
struct PolicyStatus {
  Revision revision;
  PolicyOutcome outcome = PolicyOutcome::loaded;
  std::string error;
  Acknowledgement why = Acknowledgement::reloaded;
};

enum class AdmissionState : std::uint8_t { pending, accepted, rejected };

/// Statuses for the journal, in their order.
struct StatusBatch {
  std::vector<PolicyStatus> statuses;
};

/// A batch is in the journal and stays there through a crash. Its statuses have sequences from `first` on. Where the journal could be
/// opened only now, it holds statuses of a process before: `replayed` of them, from `replayed_first` to `replayed_last`.
struct JournalWritten {
  std::uint64_t first = 0;
  std::uint64_t replayed = 0, replayed_first = 0, replayed_last = 0;
};

/// Undelivered statuses of the journal with their sequences, oldest first.
struct JournalRead {
  std::vector<std::pair<std::uint64_t, PolicyStatus>> statuses;
};

/// `ReportSandboxConfiguration`: exactly the snapshot that was used.
struct AdmissionReport {
  AdmissionState state = AdmissionState::pending;
  Revision version;
  std::string policy_hash;
  std::uint64_t config_revision = 0;
  std::uint64_t provider_env_revision = 0;
  std::string error;                 ///< short, no credential, no parser text; empty unless rejected
  std::string expected_instance_id;  ///< the fence; kept on retries
};

/// A snapshot and its environment, fetched together, not yet looked into.
struct Candidate {
  ConfigSnapshot snapshot;
  ProviderEnvironment environment;
  bool reload_policy = true;  ///< false: same content as what runs; acknowledge only [ACK-19]
  bool environment_changed = true;
};

/// What the publisher made of a candidate. A rejected one is handled too: the poller is told and goes on.
struct PublishOutcome {
  bool published = false;
  bool environment_installed = false;  ///< also true where there was nothing to install
};

/// What is installed in the runtime, as evidence for the gateway. [spec of provider readiness]
struct ReadinessReport {
  std::string session_id;
  std::uint64_t sequence = 0;
  std::string attachment_epoch;
  std::uint64_t provider_env_revision = 0;
  std::uint64_t config_revision = 0;
  std::string policy_hash;
  bool credentials_installed = false;
  bool policy_active = false;
  bool launch_environment_installed = false;
};

/// The gateway took the evidence. It forgets it unless the next report comes within the interval.
struct ReadinessAccepted {
  std::chrono::milliseconds report_interval{0};  ///< 0: not said
};

/// One denied open or request that a person could allow.
struct DenialEvent {
  std::string denial_id;  ///< UUID, made where the denial was decided
  std::string host;       ///< lower case
  std::uint16_t port = 0;
  std::string binary;  ///< path of the program, "-" where it is unknown
  std::vector<std::string> ancestors;
  std::string reason;
  std::string stage;      ///< "transparent_tcp_connect", "connect-l7-parse-rejection", ...
  std::string l7_method;  ///< with l7_path: a request that was read and refused
  std::string l7_path;
  std::chrono::system_clock::time_point at;
};

/// Up to 20 distinct (method, path) of one key.
struct L7Sample {
  std::string method;
  std::string path;
  std::uint32_t count = 0;
};

/// All denials of one (host, port, binary) of a flush interval, folded.
struct DenialSummary {
  DenialEvent first;                    ///< ancestors, reason and stage are those of the first event
  std::vector<std::string> denial_ids;  ///< the first event's, then up to 19 more
  std::uint32_t count = 0;
  std::chrono::system_clock::time_point last_seen;
  std::vector<L7Sample> samples;
};

/// A rule that would have allowed a summary, for a person to look at.
struct Proposal {
  std::string rule_name;
  std::string host;
  std::uint16_t port = 0;
  std::string binary;
  double confidence = 0;  ///< 0.1..0.95
  std::vector<std::string> denial_ids;
  std::uint32_t count = 0;
  std::chrono::system_clock::time_point first_seen;
  std::chrono::system_clock::time_point last_seen;
  std::string stage;
};

struct DenialBatch {
  std::vector<DenialSummary> summaries;
  std::vector<Proposal> proposals;  ///< highest confidence first
};

/// The last result of an endpoint that has a status. `result` is the number of the wire's enum.
struct EndpointObservation {
  std::string endpoint_id;
  int result = 0;
};

/// Always the whole inventory of one configuration. A report that is sent again is the same to the byte.
struct EndpointReport {
  std::string session_id;
  std::uint64_t sequence = 0;
  std::string policy_hash;
  std::uint64_t provider_env_revision = 0;
  std::vector<EndpointObservation> observations;
  std::vector<std::string> observed;  ///< those with a result since the report before
};

/// What was published: the frame of everything that is observed from then on.
struct Installed {
  std::string policy_hash;
  std::uint64_t provider_env_revision = 0;
  std::vector<std::string> endpoint_ids;  ///< those that have a status, each once
  std::uint64_t inventory = 0;            ///< which publication this is: results carry the same number
};

/// One line for the gateway's log of this sandbox.
struct LogLine {
  std::chrono::system_clock::time_point at;
  std::string level;  ///< TRACE, DEBUG, INFO, WARN, ERROR or OCSF
  std::string target;
  std::string message;  ///< no secret
  std::map<std::string, std::string> fields;
};

/// What the gateway asks for with RelayOpen.
struct RelayRequest {
  std::string channel_id;
  std::string service_id;
  std::string tcp_host;
  std::uint16_t tcp_port = 0;  ///< 0 with `tcp`: out of range, refused
  bool tcp = false;            ///< false: target ssh, or an internal service
};

/// What the stream of a session brought. `connection` is the number of the attempt: events of an older one are ignored.
struct SessionEvent {
  struct Accepted {
    std::string session_id;
    std::chrono::milliseconds heartbeat_interval{0};  ///< 0: not said
  };
  struct Rejected {
    std::string reason;
  };
  struct Heartbeat {};
  struct RelayOpened {
    RelayRequest request;
  };
  struct RelayClosed {
    std::string channel_id;
    std::string reason;
  };
  struct ConfigUpdate {
    std::string update_id;
    bool has_content = false;  ///< a snapshot came along: not supported, answered so
  };
  struct Ended {
    int code = 0;  ///< gRPC status code
    std::string message;
  };
  std::uint64_t connection = 0;
  std::variant<Accepted, Rejected, Heartbeat, RelayOpened, RelayClosed, ConfigUpdate, Ended> what;
};

/// The state of the link to the sandbox runtime.
enum class LinkState : std::uint8_t { connected, recovering, lost };

/// How the main process ended. `code` is normalised: 0..255, 128 + n for signal n, 124 for the time limit.
struct MainExit {
  int code = 0;
  bool known = true;  ///< false: the boundary was lost, nothing may be reported as a result
};

/// A function that an actor runs in its own context, for answers that arrive on foreign threads.
struct Completion {
  std::shared_ptr<std::function<void()>> run;
};

// ---- actors
// ---------------------------------------------------------------------------------------------------------------------------------

/// The supervisor's way to the gateway's public interface: one RPC a message, 10 s each. A failure is an error that `to_status`
/// (status_error.hpp) reads. Restart: never, traffic is denied and the process ends; without it the policy could not be followed.
using GatewayClient = caf::typed_actor<
    // From PolicyPoller. The configuration as the gateway would deliver it now.
    caf::replies_to<config_atom>::with<ConfigSnapshot>,
    // From PolicyPoller. The provider environment as of now; the caller compares it with its snapshot.
    caf::replies_to<environ_atom>::with<ProviderEnvironment>,
    // From the start-up. Stores the discovered or enriched policy as a new revision; it is read back with `config`.
    caf::replies_to<submit_atom, PolicyUpload>::with<void>,
    // From StatusOutbox. Void once the gateway has stored the status.
    caf::replies_to<reported_atom, PolicyStatus>::with<void>,
    // From RuntimePublisher. Void once the gateway recorded the admission.
    caf::replies_to<admit_atom, AdmissionReport>::with<void>,
    // From RuntimePublisher. The interval of the reports, once the evidence was taken.
    caf::replies_to<ready_atom, ReadinessReport>::with<ReadinessAccepted>,
    // From EndpointObserver.
    caf::replies_to<endpoint_atom, EndpointReport>::with<void>,
    // From DenialAggregator.
    caf::replies_to<analyse_atom, DenialBatch>::with<void>,
    // From the root, until it is acknowledged. The result of the main process.
    caf::replies_to<exited_atom, std::int32_t>::with<void>,
    // From the root, until it is acknowledged. The output of the main process was delivered; the gateway may clean up.
    caf::replies_to<finalize_atom>::with<void>,
    // From StatusOutbox and Session after UNAUTHENTICATED, and from its own timer: renews both tokens. Concurrent ones share one RPC.
    caf::replies_to<renew_atom>::with<void>,
    // From gRPC's threads. An RPC ended.
    caf::reacts_to<run_atom, Completion>>;

/// The outbox's journal on disk. Runs on a thread of its own, since it waits for the disk; nobody but StatusOutbox waits for it, and that
/// for its own next offer only. Restart: over the same files; a write whose answer died with it is made again. [ACK-47]
using JournalWriter = Introspectable::extend<
    // From StatusOutbox, one at a time. Answers when the statuses are synced, or fails and has kept none.
    caf::replies_to<append_atom, StatusBatch>::with<JournalWritten>,
    // From StatusOutbox. The undelivered statuses from a sequence on, as many as one step takes.
    caf::replies_to<read_atom, std::uint64_t>::with<JournalRead>,
    // From StatusOutbox. The gateway took the status of this sequence (true) or refused it for good.
    caf::reacts_to<done_atom, std::uint64_t, bool>>;

/// Delivers policy statuses to the gateway in the order in which they happened, one at a time, for as long as it takes.
/// They come through StatusJournal, which RuntimePublisher alone fills, in the handler that published that revision, and never waits for
/// the gateway or the disk. Each is in the journal on disk before it is offered, unless the disk fails. Restart: what is waiting is offered
/// again, in its order, after the end of the process too; nothing has effect twice, since a repeated report changes nothing at the gateway.
/// [ACK-28..34, ACK-47, ACK-48]
using StatusOutbox = Introspectable::extend<
    // From RuntimePublisher, through the journal, which holds something new.
    caf::reacts_to<wake_atom>,
    // From itself. Offers the head again after a back-off.
    caf::reacts_to<pump_atom>,
    // From the root. The journal on disk, at the start and after each restart of it.
    caf::reacts_to<install_atom, JournalWriter>,
    // From itself. The write of this number takes too long, or a disk that failed is tried again.
    caf::reacts_to<tick_atom, std::uint64_t>>;

/// Builds a runtime from a candidate, swaps it in and enqueues its acknowledgement, all in one handler: nothing can be acknowledged that is
/// not in force. It is the only loader of policy after start-up and the only writer of the outbox's journal. Runs on a thread of its own,
/// since building takes milliseconds. Restart: never, traffic is denied and the process ends; a supervisor without it could not follow the
/// gateway.
using RuntimePublisher = Introspectable::extend<
    // From PolicyPoller, one at a time. Answers when the candidate is in force, or was rejected and reported.
    caf::replies_to<publish_atom, Candidate>::with<PublishOutcome>,
    // From Session. A session began (its id) or ended (empty): readiness is reported anew.
    caf::reacts_to<accepted_atom, std::string>,
    // From itself. The evidence at the gateway is about to grow old; the number tells an outdated timer.
    caf::reacts_to<tick_atom, std::uint64_t>>;

/// Asks the gateway for the configuration: every interval, and at once when nudged. At most one poll is in flight.
/// Restart: never, traffic is denied and the process ends; what it knew of the running configuration died with it.
using PolicyPoller = Introspectable::extend<
    // From Session. The gateway says that something changed; answered with `applied` to Session when a poll that began after it was
    // handled.
    caf::reacts_to<nudge_atom, std::string>,
    // From Session. A session began (its id; polls at once) or ended (empty; forgets unanswered nudges).
    caf::reacts_to<accepted_atom, std::string>,
    // From itself. The interval or a back-off ended; the number tells an outdated timer.
    caf::reacts_to<tick_atom, std::uint64_t>>;

/// Folds denials by (host, port, binary) and submits them with proposals every flush interval.
/// Events reach it through a queue of 1,024 that drops its oldest and counts them; `wake` only says that the queue is not empty.
/// Restart: the queue outlives it; folded counts of the interval are lost.
using DenialAggregator = Introspectable::extend<
    // From the egress threads, once per fill of the queue.
    caf::reacts_to<wake_atom>,
    // From itself.
    caf::reacts_to<tick_atom>,
    // From the root at shutdown. Answers when the last batch was taken or refused.
    caf::replies_to<stop_atom>::with<void>>;

/// Reports the last result of each endpoint that has a status: the whole inventory, one report in flight, at most one a second.
/// Results come through a box (EndpointBox) that keeps the newest of each endpoint. Restart: knows session and inventory of before, but no
/// results; the next exchange with an endpoint fills its result again.
using EndpointObserver = Introspectable::extend<
    // From the egress threads, when the box turns from empty to not empty.
    caf::reacts_to<wake_atom>,
    // From Session. Reports carry this session; empty: none, nothing is sent.
    caf::reacts_to<accepted_atom, std::string>,
    // From RuntimePublisher. What was observed under another policy or environment is dropped.
    caf::reacts_to<publish_atom, Installed>,
    // From itself. A pause or a back-off ended; the number tells an outdated timer.
    caf::reacts_to<tick_atom, std::uint64_t>>;

/// Knows the state of the link to the sandbox runtime and runs its slow operations on worker threads.
/// Restart: never; traffic is denied and the process ends, as it does when the link is lost for good.
using Boundary = Introspectable::extend<
    // From RuntimePublisher. Installs a provider environment for processes launched from now on; true when the runtime applied it.
    caf::replies_to<install_atom, ProviderEnvironment>::with<bool>,
    // From the root. Ends everything in the sandbox; void when the runtime said that no process is left.
    caf::replies_to<stop_atom>::with<void>,
    // From the boundary client's threads.
    caf::reacts_to<link_atom, LinkState>,
    // From worker threads. An operation ended.
    caf::reacts_to<run_atom, Completion>>;

/// Holds the ConnectSupervisor stream: hello, heartbeats, relays, nudges; reconnects with back-off 1..30 s.
/// Restart: the session is over for everybody; opens a new stream with a higher connection number.
using Session = Introspectable::extend<
    // From the root, once the sandbox can serve.
    caf::reacts_to<start_atom>,
    // From gRPC's threads, through the transport.
    caf::reacts_to<event_atom, SessionEvent>,
    // From PolicyPoller. The poll that these nudges asked for was handled.
    caf::reacts_to<applied_atom, std::vector<std::string>>,
    // From itself: heartbeat and reconnect timers; the number tells an outdated one.
    caf::reacts_to<tick_atom, std::uint64_t>,
    // From the root. Ends the stream; nothing is reopened.
    caf::reacts_to<stop_atom>>;

/// Ships log lines in batches of 50 or every 500 ms, lines of denials at once. Its queue of 1,024 drops the newest and counts.
/// Restart: the queue outlives it.
using LogPush = Introspectable::extend<
    // From any thread that logs, once per fill of the queue; true: send now.
    caf::reacts_to<wake_atom, bool>,
    // From itself.
    caf::reacts_to<tick_atom>,
    // From gRPC's threads. So many lines were handed to the stream; 0: none, they are queued again.
    caf::reacts_to<reported_atom, std::uint64_t>,
    // From gRPC's threads. The stream ended, with this code.
    caf::reacts_to<lost_atom, std::int32_t>,
    // From the root at shutdown. Flushes what is queued.
    caf::replies_to<stop_atom>::with<void>>;

/// Parts of an interface, for senders that need no more: the actor itself or the root in front of it.
using InstalledSink = caf::typed_actor<caf::reacts_to<publish_atom, Installed>>;
using AppliedSink = caf::typed_actor<caf::reacts_to<applied_atom, std::vector<std::string>>>;

/// Starts the others, knows what the death of each means, and stands in front of those that may be restarted: its address stays.
/// Its own death ends the process.
using Root = Introspectable::extend<
    // From Session. A session began (its id) or ended (empty); passed to PolicyPoller, RuntimePublisher and EndpointObserver.
    caf::reacts_to<accepted_atom, std::string>,
    // From Session, for PolicyPoller.
    caf::reacts_to<nudge_atom, std::string>,
    // From PolicyPoller, for Session.
    caf::reacts_to<applied_atom, std::vector<std::string>>,
    // From RuntimePublisher, for EndpointObserver; kept for its successor.
    caf::reacts_to<publish_atom, Installed>,
    // From the boundary client's threads, for Boundary.
    caf::reacts_to<link_atom, LinkState>,
    // From itself. The back-off of a dead child is over.
    caf::reacts_to<revive_atom, std::string>,
    // From the process, which ends in order. Ends the session; nothing is restarted any more.
    caf::reacts_to<close_atom>,
    // From the process. Passed to Boundary.
    caf::replies_to<stop_atom>::with<void>,
    // From the process, last of all. Answers when denials and log lines were delivered, or after the time for it.
    caf::replies_to<flush_atom>::with<void>>;

}  // namespace openshell::supervisor

#define OPENSHELL_SUPERVISOR_VALUE(T) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::supervisor::T)
OPENSHELL_SUPERVISOR_VALUE(ConfigSnapshot)
OPENSHELL_SUPERVISOR_VALUE(ProviderEnvironment)
OPENSHELL_SUPERVISOR_VALUE(PolicyUpload)
OPENSHELL_SUPERVISOR_VALUE(PolicyStatus)
OPENSHELL_SUPERVISOR_VALUE(StatusBatch)
OPENSHELL_SUPERVISOR_VALUE(JournalWritten)
OPENSHELL_SUPERVISOR_VALUE(JournalRead)
OPENSHELL_SUPERVISOR_VALUE(AdmissionReport)
OPENSHELL_SUPERVISOR_VALUE(Candidate)
OPENSHELL_SUPERVISOR_VALUE(PublishOutcome)
OPENSHELL_SUPERVISOR_VALUE(ReadinessReport)
OPENSHELL_SUPERVISOR_VALUE(ReadinessAccepted)
OPENSHELL_SUPERVISOR_VALUE(DenialBatch)
OPENSHELL_SUPERVISOR_VALUE(Installed)
OPENSHELL_SUPERVISOR_VALUE(EndpointReport)
OPENSHELL_SUPERVISOR_VALUE(SessionEvent)
OPENSHELL_SUPERVISOR_VALUE(LinkState)
OPENSHELL_SUPERVISOR_VALUE(Completion)
#undef OPENSHELL_SUPERVISOR_VALUE
