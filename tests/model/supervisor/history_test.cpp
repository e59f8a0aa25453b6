// Poller, publisher, outbox and a faulty gateway in virtual time: whatever fails, the history that the gateway sees is the history that
// happened.
#include <gmock/gmock.h>

#include <random>

#include "actors/denial_aggregator/denial_aggregator.hpp"
#include "actors/endpoint_observer/endpoint_observer.hpp"
#include "actors/outbox/outbox.hpp"
#include "actors/supervisor/boundary_actor.hpp"
#include "actors/supervisor/policy_poller.hpp"
#include "actors/supervisor/runtime_publisher.hpp"
#include "tests/model/supervisor/fakes.hpp"
#include "tests/model/virtual_time.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A session that remembers which nudges were answered.
struct FakeSession {
  std::vector<std::string> applied;
  Session spawn(caf::actor_system& system) {
    return system.spawn([this](Session::pointer) -> Session::behavior_type {
      return {[](introspect_atom) { return ActorSnapshot{}; },
              [](start_atom) {},
              [](event_atom, const SessionEvent&) {},
              [this](applied_atom, const std::vector<std::string>& ids) { applied.insert(applied.end(), ids.begin(), ids.end()); },
              [](tick_atom, std::uint64_t) {},
              [](stop_atom) {}};
    });
  }
};

class HistoryTest : public openshell::test::VirtualTime {
 protected:
  void SetUp() override {
    gateway.config = snapshot(1, "a");
    start();
  }
  void TearDown() override {
    ended.end_all();
    run();
  }

  ConfigSnapshot snapshot(std::uint64_t version, std::string hash, PolicySource source = PolicySource::sandbox) const {
    ConfigSnapshot out;
    out.version = Revision{version};
    out.policy_hash = std::move(hash);
    out.source = source;
    out.config_revision = version * 100;
    out.admitted = true;
    out.instance_id = "me";
    return out;
  }

  void start() {
    client = gateway.spawn(sys);
    outbox = ended.keep(sys.spawn(status_outbox, journal, client, Reporter{}));
    auto endpoints = sys.spawn(endpoint_observer, std::make_shared<EndpointBox>(), client, Reporter{});
    auto boundary = sys.spawn(boundary_actor, BoundaryOptions{port, host, [](LinkState) {}}, Reporter{});
    publisher = ended.keep(sys.spawn(runtime_publisher, client, journal, boundary, InstalledSink{endpoints},
                                     RuntimePublisherOptions{host, "me", gateway.config, {}, true}, Reporter{}));
    PolicyPollerOptions options;
    options.instance_id = "me";
    options.running = gateway.config;
    poller = ended.keep(sys.spawn(policy_poller, client, publisher, AppliedSink{session.spawn(sys)}, options, Reporter{}));
    run();
  }

  void nudge(const std::string& id) { caf::anon_send(poller, nudge_atom::value, id); }

  test::Ended ended;
  test::FakeGateway gateway;
  std::shared_ptr<test::FakeHost> host = std::make_shared<test::FakeHost>();
  std::shared_ptr<test::FakeBoundary> port = std::make_shared<test::FakeBoundary>();
  FakeSession session;
  GatewayClient client;
  std::shared_ptr<StatusJournal> journal = std::make_shared<StatusJournal>();
  StatusOutbox outbox;
  RuntimePublisher publisher;
  PolicyPoller poller;
};

TEST_F(HistoryTest, ACK_05_ACK_16_TheInitialRevisionIsAcknowledgedOnceHoweverOftenItIsPolled) {  // ACK-01
  for (int i = 0; i < 10; ++i) advance(10s);
  EXPECT_GE(gateway.polls, 10U);
  EXPECT_THAT(gateway.reported(), ElementsAre(1));
  EXPECT_EQ(host->builds, 0U);
}

TEST_F(HistoryTest, D33_ANudgeLoadsAtOnceAndIsAnsweredAfterThePublication) {  // ACK-17, GW-17
  gateway.config = snapshot(2, "b");
  nudge("n1");
  run();  // no time passes
  EXPECT_THAT(host->in_force, ElementsAre(2));
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2));
  EXPECT_THAT(session.applied, ElementsAre("n1"));
}

TEST_F(HistoryTest, ACK_29_NothingOvertakesAHeadThatFailsWithAnyRetryableCode) {  // ACK-33, ACK-46
  int failures = 8;
  const absl::StatusCode codes[] = {absl::StatusCode::kUnavailable,       absl::StatusCode::kDeadlineExceeded,
                                    absl::StatusCode::kResourceExhausted, absl::StatusCode::kAborted,
                                    absl::StatusCode::kInternal,          absl::StatusCode::kUnknown,
                                    absl::StatusCode::kUnauthenticated,   absl::StatusCode::kCancelled};
  gateway.on_report = [&](const PolicyStatus& status) {
    EXPECT_EQ(status.revision, Revision{2}) << "only the head is ever offered";
    if (failures == 0) {
      gateway.on_report = [](const PolicyStatus&) { return absl::OkStatus(); };
      return absl::OkStatus();
    }
    return absl::Status{codes[--failures], "not now"};
  };
  for (std::uint64_t version : {2, 3, 4}) {
    gateway.config = snapshot(version, "h" + std::to_string(version));
    nudge("n" + std::to_string(version));
    run();
  }
  EXPECT_THAT(host->in_force, ElementsAre(2, 3, 4)) << "ACK-35, ACK-36: an outage of the status path delays no policy";
  EXPECT_THAT(gateway.reported(), ElementsAre(1));
  for (int second = 0; second < 200; ++second) advance(1s);
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(gateway.renewals, 2U) << "after UNAUTHENTICATED and CANCELLED";
}

TEST_F(HistoryTest, ACK_32_ATerminalRefusalDiscardsOneAndTheNextIsSent) {
  gateway.on_report = [&](const PolicyStatus& status) {
    return status.revision == Revision{2} ? absl::NotFoundError("no such revision") : absl::OkStatus();
  };
  for (std::uint64_t version : {2, 3}) {
    gateway.config = snapshot(version, "h" + std::to_string(version));
    nudge("n");
    run();
  }
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 3));
}

TEST_F(HistoryTest, ACK_08_ACK_10_ARejectedPolicyIsReportedFailedQuarantinesAndAnswersItsNudge) {  // CA-81
  gateway.config = snapshot(2, "bad");
  nudge("n1");
  run();
  ASSERT_EQ(gateway.reports.size(), 2U);
  EXPECT_EQ(gateway.reports[1].outcome, PolicyOutcome::failed);
  EXPECT_EQ(gateway.reports[1].revision, Revision{2});
  EXPECT_EQ(gateway.reports[1].error, "rule 'x' cannot be compiled");
  EXPECT_EQ(host->quarantines, 1U);
  EXPECT_THAT(host->in_force, IsEmpty());
  EXPECT_THAT(session.applied, ElementsAre("n1"));
  EXPECT_EQ(gateway.admissions.back().state, AdmissionState::rejected);
  EXPECT_EQ(gateway.admissions.back().error.find("cannot be compiled"), std::string::npos) << "no parser text upward";

  advance(60s);
  EXPECT_EQ(gateway.reports.size(), 2U) << "once";

  gateway.config = snapshot(3, "a");  // the content of version 1 again
  nudge("n2");
  run();
  EXPECT_THAT(host->in_force, ElementsAre(3));
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2, 3));
}

TEST_F(HistoryTest, RetainLastValidKeepsTheRuntime) {
  gateway.config = snapshot(2, "bad");
  gateway.config.failure_mode = FailureMode::retain_last_valid;
  nudge("n");
  run();
  EXPECT_EQ(host->quarantines, 0U);
  EXPECT_EQ(gateway.reports.back().outcome, PolicyOutcome::failed);
}

TEST_F(HistoryTest, ACK_19_SameContentUnderANewerVersionIsAcknowledgedWithoutABuild) {
  gateway.config = snapshot(2, "a");
  nudge("n");
  run();
  EXPECT_EQ(host->builds, 0U);
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2));
}

TEST_F(HistoryTest, ACK_22_ACK_42_GlobalPoliciesAreAdmittedAndNotAcknowledged) {  // ACK-04
  gateway.config = snapshot(5, "g", PolicySource::global);
  nudge("n");
  run();
  EXPECT_THAT(host->in_force, ElementsAre(5));
  EXPECT_THAT(gateway.reported(), ElementsAre(1));
  EXPECT_EQ(gateway.admissions.back().state, AdmissionState::accepted);
  EXPECT_EQ(gateway.admissions.back().config_revision, 500U);
}

TEST_F(HistoryTest, AConfigurationThatTheGatewayDoesNotAdmitChangesNothing) {
  gateway.config = snapshot(2, "b");
  gateway.config.admitted = false;
  nudge("n");
  run();
  EXPECT_THAT(host->in_force, IsEmpty());
  EXPECT_THAT(gateway.reported(), ElementsAre(1));
  EXPECT_THAT(session.applied, ElementsAre("n"));
}

/// The environment that comes belongs to a newer configuration, and that one is not admitted: neither is put into force.
TEST_F(HistoryTest, AConfigurationThatIsNotAdmittedDoesNotComeInWithItsEnvironment) {
  gateway.config = snapshot(2, "b");
  gateway.config.provider_env_revision = gateway.environment_revision = 2;
  gateway.on_environment = [&] {
    gateway.config = snapshot(3, "c");
    gateway.config.provider_env_revision = 2;
    gateway.config.admitted = false;
  };
  nudge("n");
  run();
  EXPECT_THAT(host->in_force, IsEmpty());
  EXPECT_THAT(gateway.reported(), ElementsAre(1));
  gateway.config.admitted = true;
  gateway.on_environment = [] {};
  nudge("admitted");
  run();
  EXPECT_THAT(host->in_force, ElementsAre(3));
  EXPECT_EQ(host->builds, 1U) << "what was never loaded is not called loaded";
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 3));
}

TEST_F(HistoryTest, AGatewayOutageKeepsTheRuntimeAndTheNudgeIsAnsweredAfterwards) {  // FB-01
  gateway.on_config = [] { return absl::UnavailableError("down"); };
  nudge("n");
  advance(120s);
  EXPECT_THAT(session.applied, IsEmpty());
  EXPECT_EQ(host->quarantines, 0U);
  gateway.on_config = [] { return absl::OkStatus(); };
  gateway.config = snapshot(2, "b");
  advance(10s);
  EXPECT_THAT(session.applied, ElementsAre("n"));
  EXPECT_THAT(host->in_force, ElementsAre(2));
}

TEST_F(HistoryTest, ANewEnvironmentIsInstalledAndReportedReadyInItsSession) {
  caf::anon_send(publisher, accepted_atom::value, std::string{"s1"});
  run();
  gateway.environment_revision = 7;
  gateway.config.provider_env_revision = 7;
  nudge("n");
  run();
  EXPECT_THAT(port->installed, ElementsAre(7));
  EXPECT_THAT(gateway.reported(), ElementsAre(1)) << "no policy revision changed";
  ASSERT_FALSE(gateway.readiness.empty());
  EXPECT_EQ(gateway.readiness.back().provider_env_revision, 7U);
  EXPECT_EQ(gateway.readiness.back().session_id, "s1");
  EXPECT_TRUE(gateway.readiness.back().launch_environment_installed);
}

TEST_F(HistoryTest, ACK_37_ACK_38_AnOutageOfTheStatusPathDelaysNoSettingAndNoCredential) {
  gateway.on_report = [](const PolicyStatus&) { return absl::UnavailableError("down"); };
  gateway.config = snapshot(2, "b");
  gateway.config.settings["network.denied_http"] = std::string{"explain"};
  gateway.config.provider_env_revision = gateway.environment_revision = 7;
  nudge("n");
  run();
  EXPECT_THAT(gateway.reported(), ElementsAre(1));
  EXPECT_THAT(host->in_force, ElementsAre(2));
  EXPECT_THAT(port->installed, ElementsAre(7));
  EXPECT_THAT(session.applied, ElementsAre("n"));
  EXPECT_EQ(host->explained, std::vector<bool>{true});
}

TEST_F(HistoryTest, CA_84_ARejectedCandidateInstallsNoCredential) {
  gateway.config = snapshot(2, "bad");
  gateway.config.failure_mode = FailureMode::retain_last_valid;
  gateway.config.provider_env_revision = gateway.environment_revision = 7;
  nudge("n");
  run();
  EXPECT_EQ(gateway.reports.back().outcome, PolicyOutcome::failed);
  EXPECT_THAT(port->installed, IsEmpty()) << "its credentials would stand beside the policy that stays";
  gateway.config = snapshot(3, "c");
  gateway.config.provider_env_revision = 7;
  nudge("n2");
  run();
  EXPECT_THAT(port->installed, ElementsAre(7));
}

TEST_F(HistoryTest, ReadinessIsReportedAtTheGatewaysIntervalAsLongAsItsSessionLives) {
  gateway.readiness_interval = 4s;
  caf::anon_send(publisher, accepted_atom::value, std::string{"s1"});
  run();
  ASSERT_EQ(gateway.readiness.size(), 1U);
  advance(3'999ms);
  EXPECT_EQ(gateway.readiness.size(), 1U);
  advance(1ms);
  ASSERT_EQ(gateway.readiness.size(), 2U);
  EXPECT_GT(gateway.readiness[1].sequence, gateway.readiness[0].sequence) << "a repeated sequence would renew nothing";
  gateway.on_readiness = [] { return absl::FailedPreconditionError("sandbox supervisor is not ready"); };
  advance(4s);
  ASSERT_EQ(gateway.readiness.size(), 3U);
  gateway.on_readiness = [] { return absl::OkStatus(); };
  advance(5s);
  EXPECT_EQ(gateway.readiness.size(), 4U) << "a refused report is made again";
  caf::anon_send(publisher, accepted_atom::value, std::string{"s2"});
  run();
  ASSERT_EQ(gateway.readiness.size(), 5U);
  EXPECT_EQ(gateway.readiness[4].sequence, 1U);
  advance(4s);
  EXPECT_EQ(gateway.readiness.size(), 6U) << "one timer, not two";
  caf::anon_send(publisher, accepted_atom::value, std::string{});
  advance(60s);
  EXPECT_EQ(gateway.readiness.size(), 6U);
}

TEST_F(HistoryTest, AnIntervalThatWouldLetTheEvidenceDieIsCut) {
  gateway.readiness_interval = 1h;
  caf::anon_send(publisher, accepted_atom::value, std::string{"s1"});
  run();
  advance(10s);
  EXPECT_EQ(gateway.readiness.size(), 2U);
  gateway.readiness_interval = 1ms;
  advance(10s);
  const auto before = gateway.readiness.size();
  advance(999ms);
  EXPECT_EQ(gateway.readiness.size(), before);
}

TEST_F(HistoryTest, WhileAnEnvironmentIsOnItsWayItIsNotCalledInstalled) {
  caf::anon_send(publisher, accepted_atom::value, std::string{"s1"});
  run();
  port->hold = true;
  gateway.environment_revision = 7;
  gateway.config.provider_env_revision = 7;
  nudge("n");
  run();
  const auto before = gateway.readiness.size();
  advance(20s);
  EXPECT_EQ(gateway.readiness.size(), before);
  port->held(true);
  run();
  ASSERT_EQ(gateway.readiness.size(), before + 1);
  EXPECT_EQ(gateway.readiness.back().provider_env_revision, 7U);
}

TEST_F(HistoryTest, ACK_39_ADayOfOutageDoesNotLoseTheInitialAcknowledgement) {
  test::FakeGateway other;
  other.on_report = [](const PolicyStatus&) { return absl::UnavailableError("down"); };
  auto statuses = std::make_shared<StatusJournal>();
  auto lonely = ended.keep(sys.spawn(status_outbox, statuses, other.spawn(sys), Reporter{}));
  statuses->push({Revision{1}, PolicyOutcome::loaded, {}, Acknowledgement::initial});
  run();
  for (int hour = 0; hour < 24; ++hour) advance(1h);
  EXPECT_THAT(other.reported(), IsEmpty());
  other.on_report = [](const PolicyStatus&) { return absl::OkStatus(); };
  advance(32s);
  EXPECT_THAT(other.reported(), ElementsAre(1));
}

/// Writes, nudges, outages and time in random order: what the gateway accepted is always a rising run of what was in force, and ends
/// complete.
TEST_F(HistoryTest, ACK_18_ACK_28_RandomInterleavingsNeverReorderTheHistory) {  // ACT-33
  for (unsigned seed = 1; seed <= 30; ++seed) {
    std::mt19937 random{seed};
    test::FakeGateway faulty;
    faulty.config = snapshot(1, "h1");
    bool down = false;
    const auto maybe = [&] { return down || random() % 3 == 0 ? absl::UnavailableError("fault") : absl::OkStatus(); };
    faulty.on_report = [&](const PolicyStatus&) { return maybe(); };
    faulty.on_config = maybe;
    auto runtime = std::make_shared<test::FakeHost>();
    auto actor = faulty.spawn(sys);
    auto statuses = std::make_shared<StatusJournal>();
    auto box = sys.spawn(status_outbox, statuses, actor, Reporter{});
    auto observer = sys.spawn(endpoint_observer, std::make_shared<EndpointBox>(), actor, Reporter{});
    auto bound = sys.spawn(boundary_actor, BoundaryOptions{port, runtime, [](LinkState) {}}, Reporter{});
    auto publishing = sys.spawn(runtime_publisher, actor, statuses, bound, InstalledSink{observer},
                                RuntimePublisherOptions{runtime, "me", faulty.config, {}, true}, Reporter{});
    PolicyPollerOptions options;
    options.instance_id = "me";
    options.running = faulty.config;
    FakeSession answers;
    auto polling = sys.spawn(policy_poller, actor, publishing, AppliedSink{answers.spawn(sys)}, options, Reporter{});
    std::uint64_t version = 1;
    for (int step = 0; step < 60; ++step) {
      switch (random() % 5) {
        case 0:
          ++version;
          faulty.config = snapshot(version, (random() % 4 == 0 ? "bad" : "h") + std::to_string(version));
          break;
        case 1:
          caf::anon_send(polling, nudge_atom::value, "n" + std::to_string(step));
          break;
        case 2:
          down = random() % 2 == 0;
          break;
        default:
          advance(std::chrono::milliseconds{random() % 4'000});
      }
      sched().run(random() % 7);  // leaves messages in the queue on purpose
    }
    down = false;
    faulty.on_report = [](const PolicyStatus&) { return absl::OkStatus(); };
    faulty.on_config = [] { return absl::OkStatus(); };
    for (int i = 0; i < 10; ++i) advance(15s);
    const auto history = faulty.reported();
    EXPECT_TRUE(std::is_sorted(history.begin(), history.end())) << "seed " << seed;
    ASSERT_FALSE(history.empty());
    EXPECT_EQ(history.front(), 1U) << "seed " << seed;
    EXPECT_EQ(history.back(), version) << "seed " << seed;
    for (const auto& report : faulty.reports) {
      const bool ran =
          report.revision.value == 1 || std::count(runtime->in_force.begin(), runtime->in_force.end(), report.revision.value) > 0;
      EXPECT_EQ(report.outcome == PolicyOutcome::loaded, ran) << "seed " << seed << ": acknowledged what was never in force";
    }
    for (const auto& handle : {caf::actor_cast<caf::actor>(polling), caf::actor_cast<caf::actor>(publishing),
                               caf::actor_cast<caf::actor>(box), caf::actor_cast<caf::actor>(bound)}) {
      caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    }
    run();
  }
}

TEST_F(HistoryTest, PP_03_PP_05_DenialsAreSubmittedEveryIntervalAndKeptWhereTheGatewayRefuses) {  // ACT-32
  auto queue = std::make_shared<DenialQueue>();
  auto aggregator = ended.keep(sys.spawn(denial_aggregator, queue, client, 10s, Reporter{}));
  queue->on_fill([&] { caf::anon_send(aggregator, wake_atom::value); });
  run();
  DenialEvent event;
  event.denial_id = "d1";
  event.host = "a.test";
  event.port = 443;
  event.binary = "/usr/bin/curl";
  event.stage = "transparent_tcp_connect";
  gateway.on_analysis = [] { return absl::UnavailableError("down"); };
  queue->push(event);
  advance(10s);
  EXPECT_THAT(gateway.analyses, IsEmpty());
  gateway.on_analysis = [] { return absl::OkStatus(); };
  queue->push(event);
  advance(9'999ms);
  EXPECT_THAT(gateway.analyses, IsEmpty());
  advance(1ms);
  ASSERT_EQ(gateway.analyses.size(), 1U);
  ASSERT_EQ(gateway.analyses[0].summaries.size(), 1U);
  EXPECT_EQ(gateway.analyses[0].summaries[0].count, 2U);
  ASSERT_EQ(gateway.analyses[0].proposals.size(), 1U);
  advance(10s);
  EXPECT_EQ(gateway.analyses.size(), 1U) << "nothing new, nothing sent";
}

}  // namespace
}  // namespace openshell::supervisor
