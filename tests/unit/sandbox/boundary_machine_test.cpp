#include "actors/sandbox/boundary_machine.hpp"

#include <gtest/gtest.h>

namespace openshell::sandbox {
namespace {

using boundary::Error;
using boundary::ErrorKind;
using Action = BoundaryMachine::Action;
using Link = BoundaryMachine::Link;

constexpr char kInstance[] = "0f8fad5b-d9cb-469f-a165-70867728950e";
constexpr char kOther[] = "1f8fad5b-d9cb-469f-a165-70867728950e";

class Machine : public ::testing::Test {
 protected:
  BoundaryMachine machine{{"sb", {{"k", "v"}}, {1000, 1000, {}, "", ""}, [](const std::string& name) -> std::optional<std::uint32_t> {
                             return name == "web" ? std::optional{1000u} : name == "db" ? std::optional{7u} : std::nullopt;
                           }}};
  int ids = 0;
  std::uint64_t epoch = 1;

  CallRequest request(ConnectionNumber connection, boundary::Request operation, std::string id = {}) {
    CallRequest r;
    r.connection = connection;
    r.claims.auth_epoch = epoch;
    r.mediate = std::holds_alternative<boundary::OpenMediation>(operation);
    r.envelope = {id.empty() ? "id" + std::to_string(++ids) : id, boundary::payload_digest(operation), std::move(operation)};
    return r;
  }
  static std::string text(const BoundaryMachine::Verdict& v) {
    const auto* error = v.action == Action::answer ? std::get_if<Error>(&v.response) : nullptr;
    return error ? error->message : v.action == Action::execute ? "execute" : v.action == Action::join ? "join" : "result";
  }
  boundary::Attach attach(const std::string& instance = kInstance) { return {instance, {}, {{"k", "v"}}}; }
  /// Admits and finishes as if it had worked.
  BoundaryMachine::Verdict run(ConnectionNumber connection, boundary::Request operation, boundary::Response result, std::string id = {}) {
    const auto r = request(connection, std::move(operation), std::move(id));
    auto verdict = machine.admit(r);
    if (verdict.action == Action::execute) last = machine.finished(r, std::move(result));
    return verdict;
  }
  void bring_up(ConnectionNumber connection = 1) {
    machine.opened(connection);
    ASSERT_EQ(text(run(connection, attach(), boundary::Attached{})), "execute");
    ASSERT_EQ(text(run(connection, boundary::Confirm{}, boundary::Confirmed{})), "execute");
    ASSERT_EQ(machine.link(), Link::connected);
  }
  void start() {
    bring_up();
    boundary::StartAgent start_request;
    start_request.sandbox_id = "sb";
    ASSERT_EQ(text(run(1, start_request, boundary::Started{"g:main:0", 0, 0})), "execute");
  }
  BoundaryMachine::Settled last;
};

TEST_F(Machine, TooEarlyIsInvalidAndChangesNothing) {
  machine.opened(1);
  EXPECT_EQ(text(machine.admit(request(1, boundary::Confirm{}))), "boundary must be attached before confirm");
  EXPECT_EQ(text(machine.admit(request(1, boundary::StartAgent{}))), "boundary must be attached before start_agent");
  EXPECT_EQ(text(machine.admit(request(1, boundary::DiscoverPolicy{}))), "execute");
  run(1, attach(), boundary::Attached{});
  EXPECT_EQ(text(machine.admit(request(1, boundary::StartAgent{}))), "boundary must be confirmed before start_agent");
  run(1, boundary::Confirm{}, boundary::Confirmed{});
  EXPECT_EQ(text(machine.admit(request(1, boundary::Wait{"x"}))), "agent process has not been started");
  EXPECT_EQ(text(machine.admit(request(1, boundary::AcceptNetwork{}))), "execute");
}

TEST_F(Machine, RT_43_RT_77_AttachIsPinnedToOneSupervisorPolicyAndClaims) {  // FB-14
  bring_up();
  machine.opened(2);
  EXPECT_EQ(text(machine.admit(request(2, attach(kOther)))), "sandbox runtime is already bound to another supervisor process");
  auto changed = attach();
  changed.policy.read_only = {"/"};
  EXPECT_EQ(text(machine.admit(request(1, changed))), "attach policy does not match the bound boundary");
  changed = attach();
  changed.resource_claims.clear();
  EXPECT_EQ(text(machine.admit(request(1, changed))), "attach resource claims do not match the admitted resource");
  EXPECT_EQ(text(machine.admit(request(1, attach("00000000-0000-0000-0000-000000000000")))),
            "supervisor_instance_id is not a canonical UUID");
  EXPECT_EQ(text(machine.admit(request(1, attach("0F8FAD5B-D9CB-469F-A165-70867728950E")))),
            "supervisor_instance_id is not a canonical UUID");
  EXPECT_EQ(machine.link(), Link::connected) << "the active link is unharmed";
}

TEST_F(Machine, RT_76_PolicyIdentityMustBeTheWorkloads) {
  machine.opened(1);
  for (const auto& [user, good] : std::vector<std::pair<std::string, bool>>{
           {"1000", true}, {"1001", false}, {"web", true}, {"db", false}, {"ghost", false}, {"sandbox", true}}) {
    BoundaryMachine fresh{{"sb", {{"k", "v"}}, {1000, 1000, {}, "", ""}, [](const std::string& name) -> std::optional<std::uint32_t> {
                             return name == "web" ? std::optional{1000u} : name == "db" ? std::optional{7u} : std::nullopt;
                           }}};
    fresh.opened(1);
    auto a = attach();
    a.policy.run_as_user = user;
    EXPECT_EQ(text(fresh.admit(request(1, a))), good ? "execute" : "Selected process policy does not match the workload identity") << user;
  }
}

TEST_F(Machine, SecondConnectionOfTheSameEpochWaitsAHigherOneTakesOver) {  // RT-48, RT-63
  bring_up();
  machine.opened(2);
  EXPECT_EQ(text(machine.admit(request(2, attach()))), "another Sandbox Protocol connection with this credential epoch is still active");
  epoch = 2;
  const auto staged = machine.admit(request(2, attach(), "a2"));
  EXPECT_EQ(text(staged), "execute");
  EXPECT_EQ(staged.staged, 2u);
  EXPECT_EQ(machine.active(), 1u) << "the active link keeps working";
  EXPECT_NE(text(machine.admit(request(1, boundary::Wait{"x"}))), "execute") << "the old connection does not grow into the new epoch";
  machine.opened(3);
  const auto replaced = machine.admit(request(3, attach(), "a3"));
  EXPECT_EQ(replaced.close, std::vector<ConnectionNumber>{2});
  run(3, boundary::Confirm{}, boundary::Confirmed{});
  EXPECT_EQ(last.close, std::vector<ConnectionNumber>{1});
  EXPECT_EQ(machine.active(), 3u);
  EXPECT_FALSE(machine.closed(1)) << "the old connection closes without freezing";
  epoch = 1;
  machine.opened(4);
  EXPECT_EQ(text(machine.admit(request(4, attach()))), "supervisor credential epoch is stale");
}

TEST_F(Machine, RT_44_FB_13_LossFreezesAndTheReplayOfAttachAndConfirmRecovers) {
  machine.opened(1);
  run(1, attach(), boundary::Attached{{"g", {}}}, "attach-1");
  run(1, boundary::Confirm{}, boundary::Confirmed{}, "confirm-1");
  EXPECT_TRUE(machine.closed(1));
  EXPECT_EQ(machine.link(), Link::frozen);
  machine.opened(2);
  const auto replay = machine.admit(request(2, attach(), "attach-1"));
  EXPECT_EQ(text(replay), "result") << "the same result, no second effect";
  EXPECT_EQ(text(machine.admit(request(2, boundary::AcceptNetwork{}))),
            "sandbox boundary is frozen until its supervisor has confirmed again");
  EXPECT_EQ(text(run(2, boundary::Confirm{}, boundary::Confirmed{}, "confirm-1")), "execute") << "measured again";
  EXPECT_TRUE(last.recovered);
  EXPECT_EQ(machine.link(), Link::connected);
}

TEST_F(Machine, AFailedConfirmStaysFrozen) {
  bring_up();
  ASSERT_TRUE(machine.closed(1));
  machine.opened(2);
  run(2, attach(), boundary::Attached{});
  run(2, boundary::Confirm{}, Error{ErrorKind::process, "can not be resumed"});
  EXPECT_EQ(machine.link(), Link::frozen);
}

TEST_F(Machine, ConfirmOfAConnectionThatClosedMeanwhileCountsNothing) {
  machine.opened(1);
  run(1, attach(), boundary::Attached{});
  const auto confirm = request(1, boundary::Confirm{});
  ASSERT_EQ(text(machine.admit(confirm)), "execute");
  EXPECT_FALSE(machine.closed(1));
  const auto settled = machine.finished(confirm, boundary::Confirmed{});
  EXPECT_TRUE(std::holds_alternative<Error>(settled.response));
  EXPECT_EQ(machine.link(), Link::awaiting_confirmation);
}

TEST_F(Machine, TerminatingRefusesEverythingElse) {
  start();
  machine.terminating();
  EXPECT_EQ(text(machine.admit(request(1, attach()))), "sandbox boundary is terminated");
  EXPECT_EQ(text(machine.admit(request(1, boundary::Wait{"x"}))), "sandbox boundary is terminated");
  const auto confirm = request(1, boundary::Confirm{});
  EXPECT_TRUE(std::holds_alternative<Error>(machine.finished(confirm, boundary::Confirmed{}).response))
      << "a confirm on the way does not undo the end";
  EXPECT_EQ(machine.link(), Link::terminating);
}

TEST_F(Machine, SameIdHasItsEffectOnceAndAnotherPayloadIsDenied) {
  start();
  const boundary::Signal term{"g:main:0", boundary::ProcessSignal::term};
  const auto first = request(1, term, "s1");
  EXPECT_EQ(text(machine.admit(first)), "execute");
  EXPECT_EQ(text(machine.admit(first)), "join") << "asked again while it runs";
  machine.finished(first, boundary::Signaled{});
  EXPECT_EQ(text(machine.admit(first)), "result");
  EXPECT_EQ(text(machine.admit(request(1, boundary::Signal{"g:main:0", boundary::ProcessSignal::kill}, "s1"))),
            "control request ID was reused with a different payload");
}

TEST_F(Machine, StartAgentTwiceOnlyWhenItIsTheSame) {
  start();
  boundary::StartAgent again;
  again.sandbox_id = "sb";
  again.provider_env = {{"A", "b"}};
  EXPECT_EQ(text(machine.admit(request(1, again))), "execute") << "the provider environment is not compared";
  again.spec.program = "/bin/other";
  EXPECT_EQ(text(machine.admit(request(1, again))), "start_agent differs from the running agent process");
  again.sandbox_id = "other";
  EXPECT_EQ(text(machine.admit(request(1, again))), "start_agent names another sandbox");
}

TEST_F(Machine, OtherOperationsOnlyOnTheActiveConnection) {
  start();
  machine.opened(2);
  EXPECT_EQ(text(machine.admit(request(2, boundary::Wait{"x"}))), "control request did not come over the active supervisor connection");
  EXPECT_EQ(text(machine.admit(request(9, boundary::DiscoverPolicy{}))), "connection is closed");
  auto wrong = request(1, boundary::AcceptNetwork{});
  wrong.mediate = true;
  EXPECT_EQ(text(machine.admit(wrong)), "open_mediation, and nothing else, is asked on Mediate");
}

TEST(Ledger, HoldsItsBoundAndDropsTheOldestFinished) {
  ReplayLedger ledger{3};
  for (const char* id : {"a", "b", "c"}) EXPECT_EQ(ledger.begin(id, "d"), ReplayLedger::Known::fresh);
  ledger.finish("b", boundary::Signaled{});
  EXPECT_EQ(ledger.begin("d", "d"), ReplayLedger::Known::fresh);
  EXPECT_EQ(ledger.size(), 3u);
  EXPECT_EQ(ledger.result("b"), nullptr) << "gone: the oldest finished one; running ones stay";
  EXPECT_EQ(ledger.begin("a", "d"), ReplayLedger::Known::running);
  EXPECT_EQ(ReplayLedger::kMaxEntries, 4'096u);
}

}  // namespace
}  // namespace openshell::sandbox
