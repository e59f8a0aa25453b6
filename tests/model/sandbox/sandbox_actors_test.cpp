// The actors of openshell-sandbox in virtual time: calls are the test's, everything below the actors too.
#include "tests/model/virtual_time.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <deque>

#include "actors/introspection/directory.hpp"
#include "actors/sandbox/boundary.hpp"
#include "actors/sandbox/broker_control.hpp"
#include "actors/sandbox/exec_registry.hpp"
#include "actors/sandbox/launcher_control.hpp"
#include "actors/sandbox/managed_process.hpp"
#include "actors/sandbox/mediation_lease.hpp"
#include "actors/sandbox/watch.hpp"

namespace openshell::sandbox {
namespace {

using namespace std::chrono_literals;
using boundary::Error;

constexpr char kInstance[] = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// A call that writes down its answer.
class FakeCall final : public Call {
 public:
  FakeCall(ConnectionNumber connection, boundary::Request operation, std::string id) {
    auto r = std::make_shared<CallRequest>();
    r->connection = connection;
    r->claims.auth_epoch = 1;
    r->mediate = std::holds_alternative<boundary::OpenMediation>(operation);
    r->envelope = {std::move(id), boundary::payload_digest(operation), std::move(operation)};
    request_ = std::move(r);
  }
  const std::shared_ptr<const CallRequest>& request() const override { return request_; }
  void respond(const boundary::Response& r, std::shared_ptr<CallStream> s) override {
    responses.push_back(r);
    stream = std::move(s);
  }
  void read() override {}
  void write(std::string) override {}
  void finish(CallEnd, const std::string&) override { ended = true; }
  bool over() const override { return ended; }
  void on_over(std::function<void()> then) override { hooks.push_back(std::move(then)); }
  [[nodiscard]] std::string text() const {
    if (responses.empty()) return "(no answer)";
    const auto* error = std::get_if<Error>(&responses.back());
    return error ? error->message : std::string(boundary::result_name(responses.back()));
  }
  std::vector<boundary::Response> responses;
  std::shared_ptr<CallStream> stream;
  std::vector<std::function<void()>> hooks;
  bool ended = false;

 private:
  std::shared_ptr<const CallRequest> request_;
};

/// What the actors below Boundary were told, in order.
struct Journal {
  std::vector<std::string> events;
  std::string freeze_error, resume_error, stop_error;
  bool hold_freeze = false;
  caf::typed_response_promise<std::string> held;
};

TreeControl::behavior_type fake_tree(TreeControl::pointer self, Journal* journal) {
  return {
      [=](introspect_atom) {  // also: let go of the held answer, since a promise is delivered by its own actor only
        if (journal->held.pending()) journal->held.deliver(std::string{});
        return ActorSnapshot{};
      },
      [=](freeze_atom) {
        journal->events.emplace_back("tree.freeze");
        auto promise = self->make_response_promise<std::string>();
        if (journal->hold_freeze) {
          journal->held = promise;
        } else {
          promise.deliver(journal->freeze_error);
        }
        return promise;
      },
      [=](resume_atom) {
        journal->events.emplace_back("tree.resume");
        return journal->resume_error;
      },
      [=](stop_atom, std::uint32_t grace) {
        journal->events.push_back("tree.stop " + std::to_string(grace));
        return journal->stop_error;
      },
      [=](kill_atom, const ProcessRef& ref) {
        journal->events.push_back("tree.kill " + ref.process->id());
        return std::string{};
      },
  };
}

BrokerControl::behavior_type fake_broker(BrokerControl::pointer, Journal* journal) {
  return {
      [](introspect_atom) { return ActorSnapshot{}; },
      [](open_atom, const OpenEvent&) {},
      [](ended_atom, std::uint64_t) {},
      [](seen_atom) {},
      [=](accept_atom, const IncomingCall&) { journal->events.emplace_back("broker.accept"); },
      [](decide_atom, const OpenEvent&, std::int32_t) {},
      [=](freeze_atom) { journal->events.emplace_back("broker.freeze"); },
      [=](resume_atom) { journal->events.emplace_back("broker.resume"); },
  };
}

struct Launches {
  boost::asio::io_context io;
  std::vector<std::shared_ptr<const ProcessOrder>> orders;
  std::vector<std::shared_ptr<ManagedProcess>> processes;
  std::string error;
};

LaunchOutcome fake_launch(Launches* launches, const LaunchOrder& order, bool main) {
  launches->orders.push_back(order.order);
  if (!launches->error.empty()) return {nullptr, launches->error};
  int fds[6];
  for (int i = 0; i < 3; ++i) EXPECT_EQ(::pipe(fds + 2 * i), 0);
  ManagedProcess::Ends ends;
  ends.standard_input.reset(fds[1]);
  ends.standard_output.reset(fds[2]);
  ends.standard_error.reset(fds[4]);
  for (const int other : {fds[0], fds[3], fds[5]}) ::close(other);
  launches->processes.push_back(ManagedProcess::create(launches->io, order.order->process_id, main, std::move(ends), {}));
  return {launches->processes.back(), {}};
}

LauncherControl::behavior_type fake_launcher(LauncherControl::pointer, Launches* launches) {
  return {
      [](introspect_atom) { return ActorSnapshot{}; },
      [](discover_atom) { return outcome(boundary::ImagePolicy{}); },
      [](files_atom) { return outcome(boundary::ProviderFilesSupported{}); },
      [=](main_atom, const LaunchOrder& order) { return fake_launch(launches, order, true); },
      [=](launch_atom, const LaunchOrder& order) { return fake_launch(launches, order, false); },
      [](environ_atom, const Operation&) {
        return outcome(boundary::ProviderEnvironmentUpdated{1, 1, true});
      },
  };
}

class SandboxActors : public openshell::test::VirtualTime {
 protected:
  SandboxActors() {
    dir = sys.spawn(directory);
    tree = sys.spawn(fake_tree, &journal);
    broker = sys.spawn(fake_broker, &journal);
    launcher = sys.spawn(fake_launcher, &launches);
    registry = sys.spawn(
        exec_registry, ExecRegistryDependencies{launcher, tree, "g", {.accepted = 4'096, .retained = 2}, [this] { return unix_ms; }}, dir);
    lease = sys.spawn(
        mediation_lease,
        [this](std::function<void()> released) {
          releases.push_back(std::move(released));
          return std::shared_ptr<CallStream>{};
        },
        dir);
    BoundaryDependencies deps;
    deps.registry = registry;
    deps.launcher = launcher;
    deps.tree = tree;
    deps.broker = broker;
    deps.lease = lease;
    deps.directory = dir;
    deps.machine = {"sb", {}, {1000, 1000, {}, "", ""}, {}};
    deps.generation = "g";
    deps.measure = [](const std::string&) -> boundary::Response { return boundary::Confirmed{}; };
    deps.close_connection = [this](ConnectionNumber n) { closed.push_back(n); };
    deps.loopback_connect = [](std::shared_ptr<Call>) {};
    deps.resolve_links = [](std::shared_ptr<Call>) {};
    deps.exit = [this](int code) { exit_codes.push_back(code); };
    deps.unix_seconds = [this] { return static_cast<std::int64_t>(unix_ms / 1'000); };
    boundary = sys.spawn(boundary_actor, std::move(deps));
    run();
  }
  ~SandboxActors() override {
    // The coordinator fires every timer that is left when the system ends; the registry re-arms one for an exec that is still attached.
    caf::anon_send_exit(registry, caf::exit_reason::kill);
    sched().run(kMaxSteps);
  }

  std::shared_ptr<FakeCall> ask(ConnectionNumber connection, boundary::Request operation, std::string id = {}) {
    auto call = std::make_shared<FakeCall>(connection, std::move(operation), id.empty() ? "id" + std::to_string(++ids) : id);
    caf::anon_send(boundary, request_atom::value, IncomingCall{call});
    run();
    return call;
  }
  void connection(ConnectionNumber n) {
    caf::anon_send(boundary, opened_atom::value, n);
    run();
  }
  void cut(ConnectionNumber n) {
    caf::anon_send(boundary, closed_atom::value, n);
    run();
  }
  void bring_up(ConnectionNumber n = 1) {
    connection(n);
    ASSERT_EQ(ask(n, boundary::Attach{kInstance, {}, {}})->text(), "attached");
    ASSERT_EQ(ask(n, boundary::Confirm{})->text(), "confirmed");
  }
  void start() {
    bring_up();
    boundary::StartAgent request;
    request.sandbox_id = "sb";
    ASSERT_EQ(ask(1, request)->text(), "started");
  }
  boundary::Exec exec(const std::string& command = "true") {
    boundary::Exec request{unix_ms + 30'000, {}};
    request.spec.shell = boundary::ShellSpec{command, false};
    return request;
  }

  Journal journal;
  Launches launches;
  std::uint64_t unix_ms = 1'000'000;
  Directory dir;
  TreeControl tree;
  BrokerControl broker;
  LauncherControl launcher;
  ExecRegistry registry;
  MediationLease lease;
  Boundary boundary;
  std::vector<std::function<void()>> releases;
  std::vector<ConnectionNumber> closed;
  std::vector<int> exit_codes;
  int ids = 0;
};

using Events = std::vector<std::string>;

TEST_F(SandboxActors, RT_38_RT_46_LossFreezesBrokerThenTreeAndConfirmResumesInReverse) {
  start();
  cut(1);
  EXPECT_EQ(journal.events, (Events{"broker.freeze", "tree.freeze"}));
  connection(2);
  EXPECT_EQ(ask(2, boundary::Attach{kInstance, {}, {}})->text(), "attached");
  EXPECT_EQ(ask(2, boundary::Confirm{})->text(), "confirmed");
  EXPECT_EQ(journal.events, (Events{"broker.freeze", "tree.freeze", "tree.resume", "broker.resume"}));
  advance(31s);
  EXPECT_TRUE(exit_codes.empty()) << "the recovered link does not expire";
}

TEST_F(SandboxActors, RT_41_RT_47_ThirtySecondsWithoutASupervisorEndEverythingWithExit7) {  // FB-17, FB-19
  start();
  cut(1);
  advance(29'999ms);
  EXPECT_TRUE(exit_codes.empty());
  advance(1ms);
  EXPECT_EQ(journal.events.back(), "tree.stop 10");
  EXPECT_EQ(exit_codes, std::vector<int>{7});
  connection(2);
  EXPECT_EQ(ask(2, boundary::Attach{kInstance, {}, {}})->text(), "sandbox boundary is terminated");
}

TEST_F(SandboxActors, RT_41_FailedAttemptsDoNotRestartTheRecoveryWindow) {
  start();
  cut(1);
  advance(20s);
  connection(2);
  ask(2, boundary::Attach{kInstance, {}, {}});
  cut(2);
  advance(10s);
  EXPECT_EQ(exit_codes, std::vector<int>{7});
}

TEST_F(SandboxActors, AConfirmThatComesWhileTheFreezeIsGoingOnWaitsForItsEnd) {
  start();
  journal.hold_freeze = true;
  cut(1);
  connection(2);
  ask(2, boundary::Attach{kInstance, {}, {}});
  auto confirm = ask(2, boundary::Confirm{});
  EXPECT_EQ(confirm->text(), "(no answer)");
  EXPECT_EQ(journal.events, (Events{"broker.freeze", "tree.freeze"}));
  caf::anon_send(tree, introspect_atom::value);
  run();
  EXPECT_EQ(confirm->text(), "confirmed");
  EXPECT_EQ(journal.events, (Events{"broker.freeze", "tree.freeze", "tree.resume", "broker.resume"}));
}

TEST_F(SandboxActors, ATreeThatCanNotBeResumedStaysFrozenAndExpires) {
  start();
  cut(1);
  journal.resume_error = "3 tasks are still stopped";
  connection(2);
  ask(2, boundary::Attach{kInstance, {}, {}});
  EXPECT_EQ(ask(2, boundary::Confirm{})->text(), "3 tasks are still stopped");
  advance(30s);
  EXPECT_EQ(exit_codes, std::vector<int>{7});
}

TEST_F(SandboxActors, NeverConfirmedIsExit6AndASignalBeforeItExit8) {
  advance(299'999ms);
  EXPECT_TRUE(exit_codes.empty());
  advance(1ms);
  EXPECT_EQ(exit_codes, std::vector<int>{6});
}

TEST_F(SandboxActors, SignalBeforeConfirmIsExit8) {
  caf::anon_send(boundary, stop_atom::value, std::int32_t{15});
  run();
  EXPECT_EQ(exit_codes, std::vector<int>{8});
}

TEST_F(SandboxActors, StagedConnectionThatDoesNotConfirmIn30SecondsIsClosed) {
  connection(1);
  ask(1, boundary::Attach{kInstance, {}, {}});
  advance(29'999ms);
  EXPECT_TRUE(closed.empty());
  advance(1ms);
  EXPECT_EQ(closed, std::vector<ConnectionNumber>{1});
}

TEST_F(SandboxActors, TerminateBoundaryAnswersAllWhoAskedAndExitsWhenTheAnswerLeft) {
  start();
  auto first = ask(1, boundary::TerminateBoundary{}, "t");
  EXPECT_EQ(first->text(), "boundary_terminated");
  EXPECT_EQ(journal.events, (Events{"broker.freeze", "tree.stop 10"}));
  EXPECT_TRUE(exit_codes.empty()) << "the answer is not out yet";
  ASSERT_EQ(first->hooks.size(), 1u);
  first->hooks[0]();
  run();
  EXPECT_TRUE(exit_codes.empty()) << "gRPC has it, the peer may not have it yet";
  advance(250ms);
  EXPECT_EQ(exit_codes, std::vector<int>{0});
}

TEST_F(SandboxActors, APeerThatClosesAfterTheLastAnswerEndsTheProcessAtOnce) {
  start();
  EXPECT_EQ(ask(1, boundary::TerminateBoundary{}, "t")->text(), "boundary_terminated");
  caf::anon_send(boundary, closed_atom::value, ConnectionNumber{1});
  run();
  EXPECT_EQ(exit_codes, std::vector<int>{0});
}

TEST_F(SandboxActors, TerminateThatLeavesProcessesSaysSoAndDoesNotExit) {
  start();
  journal.stop_error = "2 left";
  EXPECT_EQ(ask(1, boundary::TerminateBoundary{})->text(), "owned workload processes remain after forced termination");
  advance(10s);
  EXPECT_TRUE(exit_codes.empty());
  journal.stop_error.clear();
  EXPECT_EQ(ask(1, boundary::TerminateBoundary{})->text(), "boundary_terminated") << "asked again";
}

TEST_F(SandboxActors, CX_43_WaitIsAnsweredByTheExitAndNeverHoldsTheRegistry) {  // CX-46
  start();
  auto started = ask(1, exec());
  ASSERT_EQ(started->text(), "exec_started");
  const auto id = std::get<boundary::ExecStarted>(started->responses[0]).process_id;
  auto wait = ask(1, boundary::Wait{id});
  EXPECT_EQ(wait->text(), "(no answer)");
  EXPECT_EQ(ask(1, boundary::ExecSignal{id, boundary::ProcessSignal::term})->text(), "signaled") << "others are served meanwhile";
  launches.processes[1]->exited({false, 42});
  launches.orders[1]->on_exit(launches.processes[1]);
  run();
  ASSERT_EQ(wait->text(), "exited");
  EXPECT_EQ(std::get<boundary::Exited>(wait->responses[0]).status.value, 42);
  EXPECT_EQ(ask(1, boundary::Wait{id})->text(), "exited") << "the same status for every later wait";
  EXPECT_EQ(ask(1, boundary::Wait{"g:exec:99"})->text(), "unknown exec process ID");
}

TEST_F(SandboxActors, ExitedUnattachedExecIsReclaimedAfterAMinuteItsStatusStays) {  // CX-38, CX-44
  start();
  const auto request = exec();
  auto started = ask(1, request, "e1");
  const auto id = std::get<boundary::ExecStarted>(started->responses[0]).process_id;
  started->stream->start(started);  // the call, then its end
  started->stream->ended();
  launches.io.poll();
  launches.processes[1]->exited({false, 0});
  launches.orders[1]->on_exit(launches.processes[1]);
  run();
  advance(59s);
  EXPECT_EQ(ask(1, boundary::AttachProcess{id})->text(), "process_attached");
  launches.io.restart();
  advance(1s);
  EXPECT_EQ(ask(1, boundary::Wait{id})->text(), "exited");
}

TEST_F(SandboxActors, SpawnFailureIsAnsweredWithItsProgramAndNotTriedAgainUnderItsId) {
  start();
  launches.error = "failed to spawn 'nope': no such program";
  const auto request = exec();
  EXPECT_EQ(ask(1, request, "e1")->text(), "failed to spawn 'nope': no such program");
  launches.error.clear();
  EXPECT_EQ(ask(1, request, "e1")->text(), "failed to spawn 'nope': no such program");
  EXPECT_EQ(launches.orders.size(), 2u);
}

TEST_F(SandboxActors, MainThatCouldNotStartMayBeStartedAgain) {
  bring_up();
  launches.error = "failed to spawn sandbox entrypoint process 'x': gone";
  boundary::StartAgent request;
  request.sandbox_id = "sb";
  EXPECT_EQ(ask(1, request)->text(), launches.error);
  launches.error.clear();
  EXPECT_EQ(ask(1, request)->text(), "started");
}

TEST_F(SandboxActors, RT_40_OneMediationAtATimeTheNextWaits20Seconds) {
  start();
  auto first = ask(1, boundary::OpenMediation{});
  EXPECT_EQ(first->text(), "mediation_ready");
  auto second = ask(1, boundary::OpenMediation{}), third = ask(1, boundary::OpenMediation{});
  advance(19'999ms);
  EXPECT_EQ(second->text(), "(no answer)");
  releases[0]();
  run();
  EXPECT_EQ(second->text(), "mediation_ready") << "the lease passed on";
  advance(1ms);
  EXPECT_EQ(third->text(), "a mediation session is already active");
}

TEST_F(SandboxActors, IntrospectShowsTheDirectoryOnceASecond) {
  start();
  auto first = ask(1, boundary::Introspect{128, 65'536});
  ASSERT_EQ(first->text(), "introspected");
  const auto& shown = std::get<boundary::Introspected>(first->responses[0]);
  EXPECT_GE(shown.actors.size(), 2u);
  EXPECT_EQ(ask(1, boundary::Introspect{128, 65'536})->text(), "introspect rate limit");
  advance(1s);
  auto small = ask(1, boundary::Introspect{1, 65'536});
  EXPECT_EQ(std::get<boundary::Introspected>(small->responses[0]).actors.size(), 1u);
  EXPECT_GE(std::get<boundary::Introspected>(small->responses[0]).left_out, 1u);
}

// ---- broker control
// ---------------------------------------------------------------------------------------------------------------------------------

struct FakeGate final : OpenGate {
  absl::StatusOr<isolation::FileDescriptor> allow(isolation::OpenId id) override {
    log.push_back("allow " + std::to_string(id));
    return absl::NotFoundError("over");
  }
  void deny(isolation::OpenId id, isolation::DenyReason reason) override {
    log.push_back("deny " + std::to_string(id) + " " + std::string(isolation::to_string(reason)));
  }
  void freeze() override { log.emplace_back("freeze"); }
  void resume() override { log.emplace_back("resume"); }
  isolation::BrokerStatistics statistics() const override { return {}; }
  std::vector<std::string> log;
};

class Opens : public openshell::test::VirtualTime {
 protected:
  Opens() {
    control = sys.spawn(broker_control, gate, &io, nullptr, sys.spawn(directory));
    run();
  }
  void open(isolation::OpenId id) {
    auto o = std::make_shared<NetworkOpen>();
    o->request.id = id;
    o->request.identity = absl::UnavailableError("unknown");
    o->request.destination = *isolation::SocketAddress::parse("203.0.113.9", static_cast<std::uint16_t>(id));
    caf::anon_send(control, open_atom::value, OpenEvent{o});
    run();
  }
  std::shared_ptr<FakeCall> accept() {
    auto call = std::make_shared<FakeCall>(1, boundary::AcceptNetwork{}, "a" + std::to_string(++ids));
    caf::anon_send(control, accept_atom::value, IncomingCall{call});
    run();
    return call;
  }
  static std::string destination(const FakeCall& call) {
    return call.responses.empty() ? "" : std::get<boundary::NetworkConnected>(call.responses[0]).destination;
  }
  void decide(const std::shared_ptr<FakeCall>& call, boundary::OpenDecision decision) {
    call->stream->start(call);
    call->stream->received(boundary::encode_process_frame(boundary::Channel::tcp_decision, boundary::encode_open_decision(decision)));
    io.restart();
    io.poll();
    run();
  }
  boost::asio::io_context io;
  std::shared_ptr<FakeGate> gate = std::make_shared<FakeGate>();
  BrokerControl control;
  int ids = 0;
};

TEST_F(Opens, OldestOpenMeetsOldestCallAndTheDecisionReachesTheBroker) {
  open(1);
  open(2);
  auto a = accept(), b = accept();
  EXPECT_EQ(destination(*a), "203.0.113.9:1");
  EXPECT_EQ(destination(*b), "203.0.113.9:2");
  decide(b, boundary::OpenDecision::policy_denied);
  decide(a, boundary::OpenDecision::relay_ready);
  EXPECT_EQ(gate->log, (std::vector<std::string>{"deny 2 policy_denied", "allow 1"}));
  EXPECT_TRUE(b->ended);
}

TEST_F(Opens, RT_54_AnOpenThatEndedIsNeverDecidedAndADeadCallIsPassedOver) {
  auto dead = accept();
  dead->ended = true;
  open(1);
  EXPECT_EQ(destination(*dead), "");
  auto live = accept();
  EXPECT_EQ(destination(*live), "203.0.113.9:1");
  caf::anon_send(control, ended_atom::value, std::uint64_t{1});
  run();
  decide(live, boundary::OpenDecision::relay_ready);
  EXPECT_TRUE(gate->log.empty());
}

TEST_F(Opens, ABrokenStreamBeforeTheDecisionIsMediationUnavailable) {  // RT-52
  open(1);
  auto call = accept();
  call->stream->start(call);
  call->stream->ended();
  io.poll();
  run();
  EXPECT_EQ(gate->log, std::vector<std::string>{"deny 1 mediation_unavailable"});
}

TEST_F(Opens, QueueIsBoundedAndFreezeAnswersTheBrokerFirst) {
  for (isolation::OpenId id = 1; id <= BrokerControlState::kMaxQueuedOpens; ++id) open(id);
  EXPECT_TRUE(gate->log.empty());
  open(1'000);
  EXPECT_EQ(gate->log, std::vector<std::string>{"deny 1000 resource_exhausted"});
  gate->log.clear();
  caf::anon_send(control, freeze_atom::value);
  run();
  open(1'001);
  EXPECT_EQ(gate->log, (std::vector<std::string>{"freeze", "deny 1001 mediation_unavailable"}));
  EXPECT_EQ(destination(*accept()), "") << "what waited is gone";
}

TEST_F(SandboxActors, TheDeathOfAnyActorEndsTheProcess) {
  start();
  std::vector<std::string> dead;
  const std::pair<const char*, caf::actor> actors[] = {
      {"boundary", caf::actor_cast<caf::actor>(boundary)}, {"exec_registry", caf::actor_cast<caf::actor>(registry)},
      {"launcher", caf::actor_cast<caf::actor>(launcher)}, {"tree", caf::actor_cast<caf::actor>(tree)},
      {"broker", caf::actor_cast<caf::actor>(broker)},     {"lease", caf::actor_cast<caf::actor>(lease)},
  };
  for (const auto& [name, actor] : actors) watched(actor, [&, name = name](const caf::error&) { dead.emplace_back(name); });
  for (const auto& [name, actor] : actors) {
    dead.clear();
    caf::anon_send_exit(actor, caf::exit_reason::unhandled_exception);
    run();
    EXPECT_EQ(dead, Events{name});
  }
}

TEST_F(SandboxActors, AnOrderedEndIsNoDeath) {
  start();
  bool dead = false;
  watched(caf::actor_cast<caf::actor>(lease), [&](const caf::error&) { dead = true; });
  caf::anon_send_exit(lease, caf::exit_reason::user_shutdown);
  run();
  EXPECT_FALSE(dead);
}

}  // namespace
}  // namespace openshell::sandbox
