// Every actor of the supervisor is killed in virtual time; what its restart rule promises is there afterwards.
#include <gmock/gmock.h>

#include "actors/supervisor/root.hpp"
#include "tests/model/explorer/memory_disk.hpp"
#include "tests/model/supervisor/fakes.hpp"
#include "tests/model/virtual_time.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr auto kFirstBackoff = 100ms;  // of RestartRule

struct FakeLogs final : LogTransport {
  std::size_t connects = 0;
  std::vector<std::string> lines;
  std::function<void(int)> ended;
  void connect(std::function<void(int)> on_end) override {
    ++connects;
    ended = std::move(on_end);
  }
  void send(std::vector<LogLine> batch, std::function<void(bool)> done) override {
    for (const auto& line : batch) lines.push_back(line.message);
    done(true);
  }
  void finish() override { ended(0); }
};

class RootTest : public openshell::test::VirtualTime {
 protected:
  void SetUp() override {
    gateway.config = snapshot(1, "h1");
    logs.queue = std::make_shared<LogQueue>();
    logs.transport = log_transport;
    auto options = std::make_shared<RootOptions>();
    options->gateway = gateway.spawn(sys);
    options->log_push = sys.spawn(log_push, logs, Reporter{});
    options->logs = logs;
    options->denials = denials;
    options->denial_interval = 10s;
    options->endpoints = box;
    options->journal_files = files;
    options->journal = journal;
    options->boundary = {port, host, [](LinkState) {}};
    options->publisher = {host, "me", gateway.config, {}, true};
    options->publisher_has_own_thread = false;
    options->poller.instance_id = "me";
    options->poller.running = gateway.config;
    options->session.transport = transport;
    options->session.relays = relays;
    options->session.random = [] { return 0.0; };
    options->session_changed = [this](const std::string& id) { sessions.push_back(id); };
    options->escalate = [this](const std::string& name, OnDeath action) { escalations.emplace_back(name, action); };
    options->started = [this](const std::string& name, const caf::actor& child) {
      children[name] = ended.keep(child);
      ++starts[name];
    };
    actor = ended.keep(sys.spawn(root, std::shared_ptr<const RootOptions>{options}));
    run();
    transport->bring(SessionEvent::Accepted{"s1", 15s});
    run();
  }
  void TearDown() override {
    ended.end_all();
    children.clear();
    run();
  }

  ConfigSnapshot snapshot(std::uint64_t version, std::string hash) const {
    ConfigSnapshot out;
    out.version = Revision{version};
    out.policy_hash = std::move(hash);
    out.source = PolicySource::sandbox;
    out.config_revision = version * 100;
    out.admitted = true;
    out.instance_id = "me";
    return out;
  }
  void kill(const std::string& name) {
    caf::anon_send_exit(children.at(name), caf::exit_reason::unhandled_exception);
    run();
  }
  void publish_endpoint(std::uint64_t version) {
    host->endpoint_ids = {"e"};
    box->install(1, host->inventory(), {{{"rule", 0}, "e"}});
    gateway.config = snapshot(version, "h" + std::to_string(version));
    nudge("endpoint");
  }
  void nudge(const std::string& id) {
    transport->bring(SessionEvent::ConfigUpdate{id, false});
    run();
  }

  test::Ended ended;
  test::FakeGateway gateway;
  std::shared_ptr<test::FakeHost> host = std::make_shared<test::FakeHost>();
  std::shared_ptr<test::FakeBoundary> port = std::make_shared<test::FakeBoundary>();
  std::shared_ptr<test::FakeTransport> transport = std::make_shared<test::FakeTransport>();
  std::shared_ptr<test::FakeRelays> relays = std::make_shared<test::FakeRelays>();
  std::shared_ptr<FakeLogs> log_transport = std::make_shared<FakeLogs>();
  std::shared_ptr<DenialQueue> denials = std::make_shared<DenialQueue>();
  std::shared_ptr<EndpointBox> box = std::make_shared<EndpointBox>();
  std::shared_ptr<model::DiskImage> disk = std::make_shared<model::DiskImage>();
  std::shared_ptr<JournalFiles> files = std::make_shared<JournalFiles>(std::make_unique<model::MemoryDisk>(disk), "sb", "g");
  std::shared_ptr<StatusJournal> journal = open_journal(*files);
  LogPushOptions logs;
  Root actor;
  std::map<std::string, caf::actor> children;
  std::map<std::string, int> starts;
  std::vector<std::string> sessions;
  std::vector<std::pair<std::string, OnDeath>> escalations;
};

TEST_F(RootTest, TheWholeTreeWorksThroughTheRoot) {
  EXPECT_THAT(sessions, ElementsAre("s1"));
  gateway.config = snapshot(2, "h2");
  nudge("n1");
  EXPECT_THAT(host->in_force, ElementsAre(2));
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2));
  EXPECT_THAT(transport->update_results, ElementsAre(Pair("n1", true)));
  EXPECT_EQ(gateway.readiness.back().session_id, "s1");
}

TEST_F(RootTest, LogPushComesBackAndSendsWhatWasQueuedMeanwhile) {
  kill("log_push");
  logs.queue->push({{}, "INFO", "t", "while it was dead", {}}, true);
  run();
  EXPECT_THAT(log_transport->lines, IsEmpty());
  advance(kFirstBackoff);
  advance(logs.batch_delay);
  EXPECT_THAT(log_transport->lines, ElementsAre("while it was dead"));
  logs.queue->push({{}, "INFO", "t", "afterwards", {}}, true);
  run();
  EXPECT_THAT(log_transport->lines, ElementsAre("while it was dead", "afterwards"));
  EXPECT_THAT(escalations, IsEmpty());
}

// What was in flight, what waited behind it and what is published while the outbox is dead: all of it, in order.
TEST_F(RootTest, ACK_28_TheOutboxGoesOnWithItsQueue) {
  gateway.on_report = [](const PolicyStatus&) { return absl::UnavailableError("down"); };
  for (std::uint64_t version : {2, 3}) {
    gateway.config = snapshot(version, "h" + std::to_string(version));
    nudge("n" + std::to_string(version));
  }
  caf::anon_send_exit(children.at("status_outbox"), caf::exit_reason::unhandled_exception);
  gateway.config = snapshot(4, "h4");
  nudge("n4");  // its wake-up finds nobody
  EXPECT_THAT(gateway.reported(), ElementsAre(1));
  EXPECT_EQ(journal->size(), 3U);
  gateway.on_report = [](const PolicyStatus&) { return absl::OkStatus(); };
  advance(kFirstBackoff);
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(starts["status_outbox"], 2);
}

// ACK-48: nothing waits for a writer that is dead, and its successor writes what it left.
TEST_F(RootTest, TheJournalWriterComesBackOverTheSameFiles) {
  EXPECT_EQ(files->waiting().count, 0U) << "the initial acknowledgement is delivered";
  kill("journal_writer");
  gateway.config = snapshot(2, "h2");
  nudge("n2");
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2)) << "from memory";
  gateway.on_report = [](const PolicyStatus&) { return absl::UnavailableError("down"); };
  gateway.config = snapshot(3, "h3");
  nudge("n3");
  EXPECT_EQ(files->waiting().count, 0U);
  advance(kFirstBackoff);
  EXPECT_EQ(starts["journal_writer"], 2);
  EXPECT_EQ(files->waiting().count, 1U) << "written by its successor";
  gateway.on_report = [](const PolicyStatus&) { return absl::OkStatus(); };
  advance(1s);
  EXPECT_THAT(gateway.reported(), ElementsAre(1, 2, 3));
  EXPECT_EQ(files->waiting().count, 0U);
  EXPECT_THAT(escalations, IsEmpty());
}

TEST_F(RootTest, TheDenialAggregatorFindsItsQueueAgain) {
  kill("denial_aggregator");
  DenialEvent event;
  event.denial_id = "d1";
  event.host = "a.test";
  event.port = 443;
  event.binary = "/usr/bin/curl";
  denials->push(event);
  advance(kFirstBackoff);
  denials->push(event);
  advance(10s);
  ASSERT_EQ(gateway.analyses.size(), 1U);
  EXPECT_EQ(gateway.analyses[0].summaries.at(0).count, 2U);
}

TEST_F(RootTest, TheEndpointObserverKnowsItsSessionAndConfiguration) {
  publish_endpoint(2);
  ASSERT_EQ(gateway.endpoints.size(), 1U) << "the inventory";
  kill("endpoint_observer");
  box->observe(1, {"rule", 0}, 2);  // its wake-up finds nobody
  advance(kFirstBackoff);
  ASSERT_EQ(gateway.endpoints.size(), 2U);
  EXPECT_EQ(gateway.endpoints[1].session_id, "s1");
  EXPECT_EQ(gateway.endpoints[1].policy_hash, "h2");
}

// Endpoint statuses: at once after quiet, then at most one a second; an answer that may change is asked for again with the same report.
TEST_F(RootTest, EndpointReportsArePacedAndRepeated) {
  publish_endpoint(2);
  ASSERT_EQ(gateway.endpoints.size(), 1U);
  EXPECT_TRUE(gateway.endpoints[0].observed.empty());
  box->observe(1, {"rule", 0}, 2);
  box->observe(1, {"rule", 0}, 7);
  advance(999ms);
  EXPECT_EQ(gateway.endpoints.size(), 1U);
  gateway.on_endpoints = [] {
    return absl::FailedPreconditionError("tool server endpoint status revisions do not match the current sandbox configuration");
  };
  advance(1ms);
  ASSERT_EQ(gateway.endpoints.size(), 2U);
  EXPECT_EQ(gateway.endpoints[1].observations.at(0).result, 7);
  EXPECT_THAT(gateway.endpoints[1].observed, ElementsAre("e"));
  gateway.on_endpoints = [] { return absl::OkStatus(); };
  advance(1s);
  ASSERT_EQ(gateway.endpoints.size(), 3U);
  EXPECT_EQ(gateway.endpoints[2].sequence, gateway.endpoints[1].sequence) << "the identical report again";
  gateway.on_endpoints = [] { return absl::PermissionDeniedError("another session"); };
  box->observe(1, {"rule", 0}, 2);
  advance(1s);
  ASSERT_EQ(gateway.endpoints.size(), 4U);
  advance(60s);
  EXPECT_EQ(gateway.endpoints.size(), 4U) << "dropped";
}

TEST_F(RootTest, TheSessionIsOverForEverybodyAndOpensANewerStream) {
  const auto before = transport->connection;
  const auto late = transport->sink;
  const auto reports = gateway.readiness.size();
  kill("session");
  advance(kFirstBackoff);
  EXPECT_THAT(sessions, ElementsAre("s1", ""));
  EXPECT_GT(transport->connection, before);
  late({before, SessionEvent::Accepted{"ghost", 15s}});
  run();
  EXPECT_EQ(sessions.size(), 2U);
  advance(20s);
  EXPECT_EQ(gateway.readiness.size(), reports) << "without a session there is nothing to report to";
  transport->bring(SessionEvent::Accepted{"s2", 15s});
  run();
  EXPECT_THAT(sessions, ElementsAre("s1", "", "s2"));
  EXPECT_EQ(gateway.readiness.back().session_id, "s2");
  gateway.config = snapshot(2, "h2");
  nudge("n2");
  EXPECT_THAT(transport->update_results, ElementsAre(Pair("n2", true)));
}

TEST_F(RootTest, WithoutTheRestNothingIsAllowed) {
  for (const char* name : {"gateway_client", "policy_poller", "runtime_publisher", "boundary"}) {
    escalations.clear();
    kill(name);
    EXPECT_THAT(escalations, ElementsAre(Pair(name, OnDeath::fail_closed)));
    advance(60s);
    EXPECT_EQ(starts[name], 1) << name;
  }
}

TEST_F(RootTest, WhatDiesAgainAndAgainEscalates) {
  for (int i = 0; i < 5; ++i) {
    kill("denial_aggregator");
    EXPECT_THAT(escalations, IsEmpty()) << i;
    advance(10s);
  }
  EXPECT_EQ(starts["denial_aggregator"], 6);
  kill("denial_aggregator");
  EXPECT_THAT(escalations, ElementsAre(Pair("denial_aggregator", OnDeath::escalate)));
}

TEST_F(RootTest, AClosingRootRestartsNothing) {
  caf::anon_send(actor, close_atom::value);
  run();
  kill("denial_aggregator");
  kill("runtime_publisher");
  advance(10s);
  EXPECT_EQ(starts["denial_aggregator"], 1);
  EXPECT_THAT(escalations, IsEmpty());
}

TEST_F(RootTest, FlushDeliversDenialsAndLines) {
  DenialEvent event;
  event.host = "a.test";
  denials->push(event);
  logs.queue->push({{}, "INFO", "t", "last", {}}, false);
  bool flushed = false;
  auto asker = sys.spawn(
      [&](caf::event_based_actor* self) { self->request(actor, caf::infinite, flush_atom::value).then([&] { flushed = true; }); });
  run();
  EXPECT_TRUE(flushed);
  EXPECT_EQ(gateway.analyses.size(), 1U);
  EXPECT_THAT(log_transport->lines, ElementsAre("last"));
}

}  // namespace
}  // namespace openshell::supervisor
