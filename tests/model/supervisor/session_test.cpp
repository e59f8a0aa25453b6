// The session and the log push in virtual time.
#include <gmock/gmock.h>

#include "actors/supervisor/log_push.hpp"
#include "actors/supervisor/session.hpp"
#include "tests/model/supervisor/fakes.hpp"
#include "tests/model/virtual_time.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class SessionTest : public openshell::test::VirtualTime {
 protected:
  void SetUp() override {
    SessionOptions options;
    options.transport = transport;
    options.relays = relays;
    options.gateway = gateway.spawn(sys);
    options.random = [] { return 0.0; };
    options.observers.changed = [this](const std::string& id) { sessions.push_back(id); };
    options.observers.nudged = [this](const std::string& id) { nudges.push_back(id); };
    actor = ended.keep(sys.spawn(session, options, Reporter{}));
    caf::anon_send(actor, start_atom::value);
    run();
  }
  void TearDown() override {
    ended.end_all();
    run();
  }
  template <class What>
  void bring(What what) {
    transport->bring(std::move(what));
    run();
  }
  void accept(const std::string& id, std::chrono::milliseconds interval = 15s) { bring(SessionEvent::Accepted{id, interval}); }

  std::shared_ptr<test::FakeTransport> transport = std::make_shared<test::FakeTransport>();
  std::shared_ptr<test::FakeRelays> relays = std::make_shared<test::FakeRelays>();
  test::Ended ended;
  test::FakeGateway gateway;
  std::vector<std::string> sessions, nudges;
  Session actor;
};

TEST_F(SessionTest, HeartbeatsComeAtTheGatewaysIntervalFromOneIntervalOn) {
  accept("s1");
  EXPECT_THAT(sessions, ElementsAre("s1"));
  advance(14'999ms);
  EXPECT_EQ(transport->heartbeats, 0U);
  advance(1ms);
  EXPECT_EQ(transport->heartbeats, 1U);
}

TEST_F(SessionTest, AnEndReconnectsWithBackoffAndAHigherConnectionNumber) {
  const auto first = transport->connection;
  bring(SessionEvent::Ended{14, "refused"});
  EXPECT_EQ(transport->connects, 1U);
  advance(1s);
  EXPECT_EQ(transport->connects, 2U);
  EXPECT_GT(transport->connection, first);
  bring(SessionEvent::Ended{14, "refused"});
  advance(1'999ms);
  EXPECT_EQ(transport->connects, 2U);
  advance(1ms);
  EXPECT_EQ(transport->connects, 3U);
  EXPECT_THAT(sessions, IsEmpty()) << "there never was one";
}

TEST_F(SessionTest, ASilentGatewayIsLeft) {
  accept("s1", 5s);
  advance(21s);
  EXPECT_THAT(sessions, ElementsAre("s1", ""));
  advance(2s);
  EXPECT_EQ(transport->connects, 2U);
}

TEST_F(SessionTest, UnauthenticatedRenewsTheTokens) {
  bring(SessionEvent::Ended{16, "expired"});
  EXPECT_EQ(gateway.renewals, 1U);
}

TEST_F(SessionTest, EventsOfAnOlderStreamMeanNothing) {
  const auto old = transport->sink;
  const auto old_connection = transport->connection;
  bring(SessionEvent::Ended{14, "x"});
  advance(1s);
  old({old_connection, SessionEvent::Accepted{"ghost", 15s}});
  run();
  EXPECT_THAT(sessions, IsEmpty());
}

TEST_F(SessionTest, D33_NudgesReachThePollerAndAnswersGoBackOnTheStream) {
  accept("s1");
  bring(SessionEvent::ConfigUpdate{"u1", false});
  EXPECT_THAT(nudges, ElementsAre("u1"));
  caf::anon_send(actor, applied_atom::value, std::vector<std::string>{"u1"});
  run();
  EXPECT_THAT(transport->update_results, ElementsAre(Pair("u1", true)));
  bring(SessionEvent::ConfigUpdate{"u2", true});
  EXPECT_THAT(transport->update_results, ElementsAre(Pair("u1", true), Pair("u2", false)));
  EXPECT_THAT(nudges, ElementsAre("u1", "")) << "its content is not looked at, but a poll is made";
}

TEST_F(SessionTest, RelaysAreOpenedAnsweredAndAborted) {
  accept("s1");
  bring(SessionEvent::RelayOpened{{"c1", "openshell.exec/1", "", 0, false}});
  EXPECT_THAT(relays->opened, ElementsAre("c1"));
  EXPECT_THAT(transport->relay_results, ElementsAre(Pair("c1", "")));
  relays->error = "sandbox is not ready";
  bring(SessionEvent::RelayOpened{{"c2", "openshell.exec/1", "", 0, false}});
  EXPECT_THAT(transport->relay_results, ElementsAre(Pair("c1", ""), Pair("c2", "sandbox is not ready")));
  bring(SessionEvent::RelayClosed{"c1", "cancelled"});
  EXPECT_THAT(relays->aborted, ElementsAre("c1"));
}

TEST_F(SessionTest, AfterStopNothingIsOpenedAgain) {
  accept("s1");
  caf::anon_send(actor, stop_atom::value);
  run();
  bring(SessionEvent::Ended{1, "cancelled"});
  advance(60s);
  EXPECT_EQ(transport->connects, 1U);
}

struct FakeLogTransport final : LogTransport {
  std::size_t connects = 0;
  bool accept = true;
  std::vector<std::vector<LogLine>> batches;
  std::function<void(int)> ended;
  void connect(std::function<void(int)> on_end) override {
    ++connects;
    ended = std::move(on_end);
  }
  void send(std::vector<LogLine> lines, std::function<void(bool)> done) override {
    if (accept) batches.push_back(std::move(lines));
    done(accept);
  }
  std::size_t finishes = 0;
  void finish() override { ++finishes; }
};

class LogPushTest : public openshell::test::VirtualTime {
 protected:
  void SetUp() override {
    LogPushOptions options;
    options.queue = queue;
    options.transport = transport;
    actor = ended.keep(sys.spawn(log_push, options, Reporter{}));
    queue->on_fill([this](bool urgent) { caf::anon_send(actor, wake_atom::value, urgent); });
    run();
    advance(500ms);
  }
  void TearDown() override {
    ended.end_all();
    run();
  }
  void log(const std::string& text, bool urgent = false) {
    queue->push({{}, "INFO", "t", text, {}}, urgent);
    run();
  }
  std::vector<std::string> sent() const {
    std::vector<std::string> out;
    for (const auto& batch : transport->batches) {
      for (const auto& line : batch) out.push_back(line.message);
    }
    return out;
  }
  test::Ended ended;
  std::shared_ptr<LogQueue> queue = std::make_shared<LogQueue>();
  std::shared_ptr<FakeLogTransport> transport = std::make_shared<FakeLogTransport>();
  LogPush actor;
};

TEST_F(LogPushTest, LinesWaitHalfASecondForOthers) {
  log("a");
  log("b");
  advance(499ms);
  EXPECT_THAT(sent(), IsEmpty());
  advance(1ms);
  EXPECT_THAT(sent(), ElementsAre("a", "b"));
  EXPECT_EQ(transport->batches.size(), 1U);
}

TEST_F(LogPushTest, D14_ADenialIsSentAtOnceWithWhatIsQueued) {
  log("a");
  log("denied", true);
  EXPECT_THAT(sent(), ElementsAre("a", "denied"));
}

TEST_F(LogPushTest, ABatchHoldsFiftyLines) {
  for (int i = 0; i < 120; ++i) queue->push({{}, "INFO", "t", std::to_string(i), {}}, false);
  run();
  advance(500ms);
  ASSERT_EQ(transport->batches.size(), 3U);
  EXPECT_EQ(transport->batches[0].size(), 50U);
  EXPECT_EQ(transport->batches[2].size(), 20U);
}

TEST_F(LogPushTest, LinesOfAFailedHandOffComeFirstOnTheNextStream) {
  transport->accept = false;
  log("a", true);
  transport->ended(14);
  run();
  transport->accept = true;
  log("b");
  advance(1s);
  EXPECT_THAT(sent(), ElementsAre("a", "b"));
  EXPECT_EQ(transport->connects, 2U);
}

TEST_F(LogPushTest, AFlushIsOverWhenTheGatewayHasReadTheLastLine) {
  log("a");
  bool flushed = false;
  auto asker =
      sys.spawn([&](caf::event_based_actor* self) { self->request(actor, caf::infinite, stop_atom::value).then([&] { flushed = true; }); });
  run();
  EXPECT_THAT(sent(), ElementsAre("a")) << "without waiting for others";
  EXPECT_EQ(transport->finishes, 1U);
  EXPECT_FALSE(flushed) << "the line may still be in this process";
  transport->ended(0);
  run();
  EXPECT_TRUE(flushed);
}

TEST_F(LogPushTest, AFlushTriesOnceAndDoesNotWaitForABackoff) {
  log("a", true);
  transport->accept = false;
  log("b", true);
  transport->ended(14);
  run();
  transport->accept = true;
  bool flushed = false;
  auto asker =
      sys.spawn([&](caf::event_based_actor* self) { self->request(actor, caf::infinite, stop_atom::value).then([&] { flushed = true; }); });
  run();
  EXPECT_THAT(sent(), ElementsAre("a", "b"));
  EXPECT_EQ(transport->connects, 2U);
  transport->ended(14);
  run();
  EXPECT_TRUE(flushed) << "a gateway that is gone holds nothing up";
}

TEST_F(LogPushTest, UnauthenticatedEndsPushingForGood) {
  log("a", true);
  transport->ended(16);
  run();
  log("b", true);
  advance(60s);
  EXPECT_THAT(sent(), ElementsAre("a"));
  EXPECT_EQ(transport->connects, 1U);
}

}  // namespace
}  // namespace openshell::supervisor
