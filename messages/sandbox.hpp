// The map of openshell-sandbox: every actor of the process, every message it takes, from whom, and what comes back.
// Actors hold state and decide; stream bytes go between descriptors and gRPC without ever passing a mailbox. Nothing here leaves the
// process, so no type is serialised.
#pragma once

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messages/introspection.hpp"
#include "messages/values.hpp"

namespace openshell::sandbox {

using accept_atom = caf::atom_constant<caf::atom("accept")>;
using attach_atom = caf::atom_constant<caf::atom("attach")>;
using audit_atom = caf::atom_constant<caf::atom("audit")>;
using closed_atom = caf::atom_constant<caf::atom("closed")>;
using decide_atom = caf::atom_constant<caf::atom("decide")>;
using discover_atom = caf::atom_constant<caf::atom("discover")>;
using ended_atom = caf::atom_constant<caf::atom("ended")>;
using environ_atom = caf::atom_constant<caf::atom("environ")>;
using exec_atom = caf::atom_constant<caf::atom("exec")>;
using exited_atom = caf::atom_constant<caf::atom("exited")>;
using files_atom = caf::atom_constant<caf::atom("files")>;
using freeze_atom = caf::atom_constant<caf::atom("freeze")>;
using kill_atom = caf::atom_constant<caf::atom("kill")>;
using launch_atom = caf::atom_constant<caf::atom("launch")>;
using main_atom = caf::atom_constant<caf::atom("main")>;
using mediate_atom = caf::atom_constant<caf::atom("mediate")>;
using open_atom = caf::atom_constant<caf::atom("open")>;
using opened_atom = caf::atom_constant<caf::atom("opened")>;
using reclaim_atom = caf::atom_constant<caf::atom("reclaim")>;
using request_atom = caf::atom_constant<caf::atom("request")>;
using resize_atom = caf::atom_constant<caf::atom("resize")>;
using resume_atom = caf::atom_constant<caf::atom("resume")>;
using seen_atom = caf::atom_constant<caf::atom("seen")>;
using signal_atom = caf::atom_constant<caf::atom("signal")>;
using stop_atom = caf::atom_constant<caf::atom("stop")>;
using survey_atom = caf::atom_constant<caf::atom("survey")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;
using wait_atom = caf::atom_constant<caf::atom("wait")>;

// ---- values
// -----------------------------------------------------------------------------------------------------------------------------------------

class Call;            // actors/sandbox/call.hpp: one Exchange or Mediate, thread-safe
struct CallRequest;    // what it asked, by which connection and bearer
struct Answer;         // what it is answered, and the stream it becomes
struct ProcessOrder;   // everything of one process to be launched
class ManagedProcess;  // actors/sandbox/managed_process.hpp: pipes, retained output, exit status; thread-safe
struct NetworkOpen;    // actors/sandbox/broker_control.hpp: an external connect that waits for a decision
struct ProcessSurvey;  // what an attach learns of all processes

/// One connection of a supervisor that passed TLS; never reused in a process. 0: none.
using ConnectionNumber = std::uint64_t;

struct IncomingCall {
  std::shared_ptr<Call> call;
};
struct Operation {
  std::shared_ptr<const CallRequest> request;
};
struct Outcome {
  std::shared_ptr<const Answer> answer;
};
struct LaunchOrder {
  std::shared_ptr<const ProcessOrder> order;
};
/// A process, or why there is none (then `process` is null and `error` names program and step).
struct LaunchOutcome {
  std::shared_ptr<ManagedProcess> process;
  std::string error;
};
struct ProcessRef {
  std::shared_ptr<ManagedProcess> process;
};
struct OpenEvent {
  std::shared_ptr<NetworkOpen> open;
};
struct Survey {
  std::shared_ptr<const ProcessSurvey> processes;
};

/// What a timer of Boundary is for; `number` tells an outdated one.
enum class Deadline : std::uint8_t { first_confirm, staged, recovery, bearer, exit };

// ---- actors
// -----------------------------------------------------------------------------------------------------------------------------------------

/// Owns both state machines of the channel: what the boundary may be asked, and whose connection counts. Pins the supervisor instance,
/// keeps the replay ledger, freezes on loss, resumes on recovery, ends everything on expiry. Every request passes here first and in order.
/// Restart: fails closed. What it pinned can not be learnt again, so its death ends the process and with it every workload process.
using Boundary = Introspectable::extend<
    // From gRPC threads. A whole control request; the call is answered by whoever serves it.
    caf::reacts_to<request_atom, IncomingCall>,
    // From the listener. A connection passed TLS.
    caf::reacts_to<opened_atom, ConnectionNumber>,
    // From the listener. A connection is gone, whoever closed it.
    caf::reacts_to<closed_atom, ConnectionNumber>,
    // From itself.
    caf::reacts_to<tick_atom, Deadline, std::uint64_t>,
    // From the main thread, on SIGTERM and SIGINT (the signal's number).
    caf::reacts_to<stop_atom, std::int32_t>>;

/// Knows every process of the generation: main and 4,096 exec ids, with their status for ever and their output while it is retained. An
/// exec id is never executed twice. A wait never holds it: its answer is a promise. Restart: fails closed; a lost id could be executed
/// again.
using ExecRegistry = Introspectable::extend<
    // From Boundary. Starts main, once.
    caf::replies_to<main_atom, Operation>::with<Outcome>,
    // From Boundary. Starts an exec, or continues the one with the same id.
    caf::replies_to<exec_atom, Operation>::with<Outcome>,
    // From Boundary. One attachment per process.
    caf::replies_to<attach_atom, Operation>::with<Outcome>,
    // From Boundary. Answers when the process ended, be it now or next week.
    caf::replies_to<wait_atom, Operation>::with<Outcome>,
    // From Boundary. `signal` and `exec_signal`, to the process group.
    caf::replies_to<signal_atom, Operation>::with<Outcome>,
    // From Boundary. `terminate`: the whole tree of one process.
    caf::replies_to<kill_atom, Operation>::with<Outcome>,
    // From Boundary. Size of the terminal.
    caf::replies_to<resize_atom, Operation>::with<Outcome>,
    // From Boundary. All processes with their retained output, sorted by id.
    caf::replies_to<survey_atom>::with<Survey>,
    // From the reaper's thread. This process ended.
    caf::reacts_to<exited_atom, ProcessRef>,
    // From itself. An exited, unattached exec may be given up now.
    caf::reacts_to<reclaim_atom, std::string>>;

/// Makes processes: environment, trust files, Landlock layer, launch. Has a thread of its own, since it reads and writes files and waits
/// for the fork. Restart: escalates.
using LauncherControl = Introspectable::extend<
    // From Boundary. The policy file of the image.
    caf::replies_to<discover_atom>::with<Outcome>,
    // From Boundary. Whether provider files can be written.
    caf::replies_to<files_atom>::with<Outcome>,
    // From ExecRegistry. Main: also writes the trust files and remembers policy, work directory and first provider environment.
    caf::replies_to<main_atom, LaunchOrder>::with<LaunchOutcome>,
    // From ExecRegistry.
    caf::replies_to<launch_atom, LaunchOrder>::with<LaunchOutcome>,
    // From Boundary. A provider environment for processes launched from now on; an older generation changes nothing.
    caf::replies_to<environ_atom, Operation>::with<Outcome>>;

/// Stops, resumes and ends process trees. Has a thread of its own, since passes over /proc take time. Restart: escalates.
using TreeControl = Introspectable::extend<
    // From Boundary. Stops every descendant. The text is empty, or says what still runs.
    caf::replies_to<freeze_atom>::with<std::string>,
    // From Boundary. Continues what freeze stopped.
    caf::replies_to<resume_atom>::with<std::string>,
    // From Boundary. SIGTERM, so many seconds, SIGKILL; empty text when no descendant is left.
    caf::replies_to<stop_atom, std::uint32_t>::with<std::string>,
    // From ExecRegistry. SIGKILL to the tree of one process.
    caf::replies_to<kill_atom, ProcessRef>::with<std::string>>;

/// Brings external connects of the workload and waiting `accept_network` calls together, oldest with oldest, and carries decisions to the
/// broker. Has a thread of its own, since allowing a connect performs it. Restart: fails closed.
using BrokerControl = Introspectable::extend<
    // From broker threads. A connect that waits.
    caf::reacts_to<open_atom, OpenEvent>,
    // From broker threads. It is over without a decision.
    caf::reacts_to<ended_atom, std::uint64_t>,
    // From broker threads. Connects went over the line past this actor since its figures were seen last.
    caf::reacts_to<seen_atom>,
    // From Boundary. A call that takes the next connect.
    caf::reacts_to<accept_atom, IncomingCall>,
    // From the stream of an open. The decision, as the number of boundary::OpenDecision.
    caf::reacts_to<decide_atom, OpenEvent, std::int32_t>,
    // From Boundary. Every waiting connect is answered when this returns; later ones are cancelled at once.
    caf::replies_to<freeze_atom>::with<void>,
    // From Boundary.
    caf::replies_to<resume_atom>::with<void>>;

/// Gives the one stream of DNS questions to one Mediate call at a time; another waits 20 s for it. Restart: escalates, as for all of these:
/// the death of one ends the process with 70.
using MediationLease = Introspectable::extend<
    // From Boundary.
    caf::reacts_to<mediate_atom, IncomingCall>,
    // From the stream that had the lease.
    caf::reacts_to<ended_atom, std::uint64_t>,
    // From itself. This waiter waited long enough.
    caf::reacts_to<tick_atom, std::uint64_t>>;

}  // namespace openshell::sandbox

#define OPENSHELL_SANDBOX_VALUE(T) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::sandbox::T)
OPENSHELL_SANDBOX_VALUE(IncomingCall)
OPENSHELL_SANDBOX_VALUE(Operation)
OPENSHELL_SANDBOX_VALUE(Outcome)
OPENSHELL_SANDBOX_VALUE(LaunchOrder)
OPENSHELL_SANDBOX_VALUE(LaunchOutcome)
OPENSHELL_SANDBOX_VALUE(ProcessRef)
OPENSHELL_SANDBOX_VALUE(OpenEvent)
OPENSHELL_SANDBOX_VALUE(Survey)
OPENSHELL_SANDBOX_VALUE(Deadline)
