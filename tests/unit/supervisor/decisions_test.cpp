// The plain classes behind the supervisor's actors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/denial_aggregator/denial_queue.hpp"
#include "actors/denial_aggregator/denial_window.hpp"
#include "actors/endpoint_observer/endpoint_observer.hpp"
#include "actors/outbox/outbox.hpp"
#include "actors/supervisor/acknowledgements.hpp"
#include "actors/supervisor/log_queue.hpp"
#include "actors/supervisor/poll_schedule.hpp"
#include "actors/supervisor/session_pace.hpp"
#include "actors/supervisor/settings.hpp"
#include "api/gateway_client/token_slots.hpp"
#include "policy/mapper.hpp"
#include "programs/supervisor/denial_rate.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

PolicyStatus loaded(std::uint64_t revision) { return {Revision{revision}, PolicyOutcome::loaded, {}, Acknowledgement::reloaded}; }

ConfigSnapshot snapshot(std::uint64_t version, std::string hash, PolicySource source = PolicySource::sandbox) {
  ConfigSnapshot out;
  out.version = Revision{version};
  out.policy_hash = std::move(hash);
  out.source = source;
  out.config_revision = version * 1000;
  out.admitted = true;
  out.instance_id = "me";
  return out;
}

// ---- outbox

TEST(OutboxQueue, ACK_30_BackoffDoublesToItsCapAndStartsAnewAfterSuccess) {  // ACT-31
  OutboxQueue queue{{.capacity = 8, .first_backoff = 1s, .longest_backoff = 4s}};
  queue.push(loaded(1));
  queue.push(loaded(2));
  for (auto expected : {1s, 2s, 4s, 4s}) {
    ASSERT_EQ(queue.offer()->revision, Revision{1});
    EXPECT_FALSE(queue.offer()) << "one in flight";
    EXPECT_EQ(queue.failed(), expected);
    EXPECT_FALSE(queue.offer()) << "backing off";
    queue.resume();
  }
  (void)queue.offer();
  queue.settled();
  EXPECT_EQ(queue.offer()->revision, Revision{2});
  EXPECT_EQ(queue.failed(), 1s);
}

TEST(OutboxQueue, ACK_34_AtTheLimitTheOldestThatIsNotInFlightIsDroppedAndCounted) {
  OutboxQueue queue{{.capacity = 3}};
  queue.push(loaded(1));
  ASSERT_TRUE(queue.offer());
  queue.push(loaded(2));
  queue.push(loaded(3));
  EXPECT_EQ(queue.dropped(), 0U);
  queue.push(loaded(4));
  EXPECT_EQ(queue.dropped(), 1U);
  EXPECT_EQ(queue.size(), 3U);
  queue.settled();
  EXPECT_EQ(queue.offer()->revision, Revision{3});
}

TEST(Outbox, ACK_29_TransientCodesAndTokensAreRetriedAndTheRestIsFinal) {
  using absl::StatusCode;
  for (auto code : {StatusCode::kUnavailable, StatusCode::kDeadlineExceeded, StatusCode::kResourceExhausted, StatusCode::kAborted,
                    StatusCode::kInternal, StatusCode::kUnknown, StatusCode::kUnauthenticated, StatusCode::kCancelled}) {
    EXPECT_TRUE(is_retryable(code));
  }
  for (auto code : {StatusCode::kNotFound, StatusCode::kPermissionDenied, StatusCode::kInvalidArgument, StatusCode::kFailedPrecondition,
                    StatusCode::kUnimplemented}) {
    EXPECT_FALSE(is_retryable(code));
  }
}

// ---- acknowledgements

TEST(Acknowledgements, ACK_16_TheSeededRevisionIsNotReportedAgain) {
  Acknowledgements acks;
  acks.seed(snapshot(3, "a"));
  EXPECT_FALSE(acks.loaded(snapshot(3, "a"), true));
}

TEST(Acknowledgements, ACK_19_ANewerVersionOfTheSameContentIsAcknowledgedWithoutReload) {
  Acknowledgements acks;
  acks.seed(snapshot(3, "a"));
  const auto status = acks.loaded(snapshot(4, "a"), false);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->revision, Revision{4});
  EXPECT_EQ(status->why, Acknowledgement::unchanged);
}

TEST(Acknowledgements, ACK_24_EqualAndOlderVersionsOfTheSameContentAreNot) {
  Acknowledgements acks;
  acks.seed(snapshot(3, "a"));
  EXPECT_FALSE(acks.loaded(snapshot(3, "a"), false));
  EXPECT_FALSE(acks.loaded(snapshot(2, "a"), false));
}

TEST(Acknowledgements, ACK_41_ACK_42_OnlySandboxSourcedVersionsAboveZeroAreReported) {  // ACK-03
  Acknowledgements acks;
  EXPECT_FALSE(acks.loaded(snapshot(7, "g", PolicySource::global), true));
  EXPECT_FALSE(acks.loaded(snapshot(0, "z"), true));
  EXPECT_FALSE(acks.failed(snapshot(8, "g", PolicySource::global), "bad"));
  EXPECT_TRUE(acks.loaded(snapshot(1, "s"), true));
}

TEST(Acknowledgements, ACK_10_FailureCarriesTheOriginalErrorBoundedAndOnce) {
  Acknowledgements acks;
  const std::string error(Acknowledgements::kMaxErrorBytes + 1, 'e');
  const auto status = acks.failed(snapshot(2, "b"), error);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->error.size(), Acknowledgements::kMaxErrorBytes);
  EXPECT_FALSE(acks.failed(snapshot(2, "b"), error)) << "the same rejection again";
  EXPECT_TRUE(acks.failed(snapshot(2, "b"), "another"));
}

TEST(Acknowledgements, ACK_49_FailedThenLoadedOfOneVersionIsReported) {
  Acknowledgements acks;
  acks.seed(snapshot(1, "a"));
  ASSERT_TRUE(acks.failed(snapshot(2, "b"), "bad"));
  EXPECT_TRUE(acks.loaded(snapshot(2, "b"), true));
  ASSERT_TRUE(acks.failed(snapshot(3, "c"), "bad"));
  const auto restored = acks.loaded(snapshot(2, "b"), true);  // the content before came back under its old version
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->revision, Revision{2});
}

// ---- polling

TEST(PollSchedule, IntervalIsSpreadByAFifth) {
  PollSchedule schedule;
  schedule.began();
  EXPECT_EQ(schedule.handled(0.0).wait, 8'000ms);
  schedule.began();
  EXPECT_EQ(schedule.handled(1.0).wait, 12'000ms);
}

TEST(PollSchedule, NudgeDuringAPollIsAnsweredByTheOneAfterIt) {
  PollSchedule schedule;
  EXPECT_TRUE(schedule.nudged("a"));
  schedule.began();
  EXPECT_FALSE(schedule.nudged("b"));
  EXPECT_FALSE(schedule.nudged("c"));
  auto next = schedule.handled(0.5);
  EXPECT_THAT(next.answered, ElementsAre("a"));
  EXPECT_EQ(next.wait, 0ms);
  schedule.began();
  next = schedule.handled(0.5);
  EXPECT_THAT(next.answered, ElementsAre("b", "c"));
  EXPECT_GT(next.wait, 0ms);
}

TEST(PollSchedule, FailedPollWithANudgeIsRetriedSoonerAndKeepsTheNudge) {
  PollSchedule schedule{{.interval = 4s, .first_retry = 1s}};
  EXPECT_TRUE(schedule.nudged("a"));
  for (auto expected : {1s, 2s, 4s, 4s}) {
    schedule.began();
    EXPECT_EQ(schedule.failed(0.5), expected);
  }
  schedule.began();
  EXPECT_THAT(schedule.handled(0.5).answered, ElementsAre("a"));
}

TEST(PollSchedule, FailedPollWithoutANudgeWaitsTheInterval) {
  PollSchedule schedule;
  schedule.began();
  EXPECT_EQ(schedule.failed(0.5), 10s);
}

TEST(PollSchedule, NudgesOfAnEndedSessionAreForgotten) {
  PollSchedule schedule;
  EXPECT_TRUE(schedule.nudged("a"));
  schedule.began();
  schedule.session_ended();
  EXPECT_THAT(schedule.handled(0.5).answered, IsEmpty());
}

TEST(SnapshotTracker, ACK_11_IdentityDecidesWhatIsReloaded) {  // ACK-02
  ConfigSnapshot running = snapshot(1, "a");
  SnapshotTracker tracker{"me", running, 0, ""};
  EXPECT_EQ(tracker.judge(running).change, SnapshotTracker::Change::none);

  auto newer_same = tracker.judge(snapshot(2, "a"));
  EXPECT_EQ(newer_same.change, SnapshotTracker::Change::candidate);
  EXPECT_FALSE(newer_same.reload_policy);  // ACK-19

  EXPECT_TRUE(tracker.judge(snapshot(2, "b")).reload_policy);  // ACK-25
  EXPECT_TRUE(tracker.judge(snapshot(2, "")).reload_policy);   // ACK-26
}

TEST(SnapshotTracker, ContentThatComesBackAfterARejectionIsLoadedAgain) {
  SnapshotTracker tracker{"me", snapshot(1, "a"), 0, ""};
  tracker.handled(snapshot(2, "b"), {}, true, {false, false});
  EXPECT_EQ(tracker.judge(snapshot(2, "b")).change, SnapshotTracker::Change::none);
  const auto back = tracker.judge(snapshot(3, "a"));
  EXPECT_EQ(back.change, SnapshotTracker::Change::candidate);
  EXPECT_TRUE(back.reload_policy);
}

TEST(SnapshotTracker, EnvironmentRevisionAdvancesOnlyOnSuccess) {
  SnapshotTracker tracker{"me", snapshot(1, "a"), 5, "e"};
  auto polled = snapshot(1, "a");
  polled.provider_env_revision = 6;
  polled.provider_attachment_epoch = "e";
  ASSERT_TRUE(tracker.judge(polled).fetch_environment);
  ProviderEnvironment environment{6, "e", "a", nullptr};
  tracker.handled(polled, environment, false, {false, false});
  EXPECT_TRUE(tracker.judge(polled).fetch_environment);
  tracker.handled(polled, environment, false, {true, true});
  EXPECT_EQ(tracker.judge(polled).change, SnapshotTracker::Change::none);
}

TEST(SnapshotTracker, ForeignInstanceAndUnadmittedConfigurationActivateNothing) {
  SnapshotTracker tracker{"me", snapshot(1, "a"), 0, ""};
  auto foreign = snapshot(2, "b");
  foreign.instance_id = "other";
  EXPECT_EQ(tracker.judge(foreign).change, SnapshotTracker::Change::foreign_instance);
  auto refused = snapshot(2, "b");
  refused.admitted = false;
  EXPECT_EQ(tracker.judge(refused).change, SnapshotTracker::Change::not_admitted);
  tracker.seen(refused);
  EXPECT_EQ(tracker.judge(refused).change, SnapshotTracker::Change::none);
  EXPECT_EQ(tracker.judge(snapshot(2, "b")).change, SnapshotTracker::Change::candidate) << "admitted after a repair, at the same revision";
}

// ---- session

TEST(SessionPace, BackoffGrowsToThirtySecondsAndResetsAfterAHealthySession) {
  SessionPace pace;
  SessionPace::TimePoint now{};
  for (auto expected : {1s, 2s, 4s, 8s, 16s, 30s, 30s}) EXPECT_EQ(pace.ended(now, 0), expected);
  pace.accepted(now, 15s);
  EXPECT_EQ(pace.heartbeat(), 15s);
  EXPECT_EQ(pace.ended(now + 29s, 0), 30s);
  pace.accepted(now, 0s);
  EXPECT_EQ(pace.heartbeat(), 5s);
  EXPECT_EQ(pace.ended(now + 30s, 1.0), 1'200ms);
}

TEST(SessionPace, ThreeSilentIntervalsMeanADeadPeer) {
  SessionPace pace;
  SessionPace::TimePoint now{};
  pace.accepted(now, 5s);
  EXPECT_FALSE(pace.silent(now + 15s));
  EXPECT_TRUE(pace.silent(now + 15s + 1ms));
  pace.heard(now + 15s);
  EXPECT_FALSE(pace.silent(now + 30s));
}

// ---- denials

DenialEvent denial(std::string id, std::string host = "db.lab-1.test", std::uint16_t port = 5432) {
  DenialEvent event;
  event.denial_id = std::move(id);
  event.host = std::move(host);
  event.port = port;
  event.binary = "/usr/bin/psql";
  event.stage = "transparent_tcp_connect";
  return event;
}

TEST(DenialWindow, FoldsByHostPortAndBinaryAndKeepsTwentyIds) {
  DenialWindow window;
  for (int i = 0; i < 25; ++i) window.add(denial("id" + std::to_string(i)));
  window.add(denial("other", "elsewhere.test"));
  const auto summaries = window.take();
  ASSERT_EQ(summaries.size(), 2U);
  EXPECT_EQ(summaries[0].count, 25U);
  EXPECT_EQ(summaries[0].denial_ids.size(), 20U);
  EXPECT_EQ(summaries[0].denial_ids.front(), "id0");
  EXPECT_TRUE(window.empty());
}

TEST(DenialWindow, AtTheLimitNewKeysAreOnlyCounted) {
  DenialWindow window{{.keys = 2}};
  window.add(denial("a", "a.test"));
  window.add(denial("b", "b.test"));
  window.add(denial("c", "c.test"));
  window.add(denial("a2", "a.test"));
  EXPECT_EQ(window.size(), 2U);
  EXPECT_EQ(window.overflow(), 1U);
}

TEST(DenialWindow, ABatchThatWasNotTakenIsFoldedBackWithTheOlderFirst) {
  DenialWindow window;
  window.add(denial("old"));
  auto batch = window.take();
  window.add(denial("new"));
  window.merge(std::move(batch));
  const auto summaries = window.take();
  ASSERT_EQ(summaries.size(), 1U);
  EXPECT_EQ(summaries[0].count, 2U);
  EXPECT_THAT(summaries[0].denial_ids, ElementsAre("old", "new"));
}

TEST(Proposals, NameAndConfidenceFollowCountPortAndStage) {
  EXPECT_EQ(policy::proposal_name("db.lab-1.test", 5432), "allow_db_lab_1_test_5432");
  EXPECT_DOUBLE_EQ(policy::proposal_confidence(12, 5432, "transparent_tcp_connect"), 0.85);
  EXPECT_DOUBLE_EQ(policy::proposal_confidence(1, 7000, "transparent_tcp_connect"), 0.5);
  EXPECT_DOUBLE_EQ(policy::proposal_confidence(3, 7000, "ssrf"), 0.4);
}

TEST(Proposals, PP_09_NeverForRequestsOrForWhatNoRuleMayOpen) {
  DenialWindow window;
  window.add(denial("meta", "169.254.169.254", 80));
  window.add(denial("loop", "localhost", 80));
  auto request = denial("l7", "api.test", 443);
  request.l7_method = "POST";
  request.l7_path = "/push";
  window.add(request);
  window.add(denial("yes", "ok.test", 443));
  const auto proposals = propose(window.take());
  ASSERT_EQ(proposals.size(), 1U);
  EXPECT_EQ(proposals[0].host, "ok.test");
  EXPECT_THAT(proposals[0].denial_ids, ElementsAre("yes"));
}

TEST(Proposals, PP_13_EveryProposalIsExactlyHostAndPort) {
  EXPECT_EQ(policy::proposal_rationale({"api.test", 443, "/usr/bin/curl", "connect", 1}), "Allow curl to connect to api.test:443 (HTTPS).");
  EXPECT_EQ(policy::proposal_rationale({"api.test", 7000, "-", "connect", 1}), "Allow unknown binary to connect to api.test:7000.");
  for (const char* stage : {"connect", "forward", "ssrf", "transparent_tcp_connect"})
    EXPECT_TRUE(policy::is_proposable({"api.test", 443, "/b", stage, 1})) << stage;
  for (const char* stage : {"forward-l7-deny", "connect-l7-parse-rejection", "", "dns"})
    EXPECT_FALSE(policy::is_proposable({"api.test", 443, "/b", stage, 1})) << stage;
  for (const char* host : {"127.0.0.1", "169.254.169.254", "::1", "fe80::1", "localhost", "localhost.", "metadata.google.internal", ""})
    EXPECT_FALSE(policy::is_proposable({host, 443, "/b", "connect", 1})) << host;
  EXPECT_TRUE(policy::is_proposable({"host.openshell.internal", 9091, "/b", "connect", 1}));
}

TEST(DenialRate, PP_14_OneLineOfAKeyAtOnceThenOneASecond) {
  DenialRate rate;
  const auto start = std::chrono::steady_clock::time_point{} + 1h;
  EXPECT_TRUE(rate.admit("a.test", 443, "/b", start));
  int lines = 0;
  for (int i = 0; i < 1'000; ++i) lines += rate.admit("a.test", 443, "/b", start + std::chrono::milliseconds{i % 1'000}) ? 1 : 0;
  EXPECT_EQ(lines, 0);
  EXPECT_TRUE(rate.admit("a.test", 443, "/c", start)) << "another program";
  EXPECT_TRUE(rate.admit("a.test", 8443, "/b", start)) << "another port";
  EXPECT_TRUE(rate.admit("a.test", 443, "/b", start + DenialRate::kInterval));
}

TEST(DenialRate, ABoundedTableLetsNewKeysInWhenOldOnesArePast) {
  DenialRate rate;
  const auto start = std::chrono::steady_clock::time_point{} + 1h;
  for (std::size_t i = 0; i < DenialRate::kMaxKeys; ++i) ASSERT_TRUE(rate.admit(std::to_string(i) + ".test", 443, "/b", start));
  EXPECT_FALSE(rate.admit("more.test", 443, "/b", start));
  EXPECT_TRUE(rate.admit("more.test", 443, "/b", start + DenialRate::kInterval));
}

TEST(DenialQueue, DropsItsOldestAndWakesOncePerFill) {
  DenialQueue queue;
  int woken = 0;
  queue.on_fill([&] { ++woken; });
  for (std::size_t i = 0; i < DenialQueue::kMaxEvents + 2; ++i) queue.push(denial(std::to_string(i)));
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(queue.dropped(), 2U);
  const auto events = queue.drain();
  ASSERT_EQ(events.size(), DenialQueue::kMaxEvents);
  EXPECT_EQ(events.front().denial_id, "2");
}

// ---- endpoints, logs, settings, tokens

TEST(EndpointWindow, ReportsTheWholeInventoryAndSaysWhatIsNew) {  // TS-09, TS-26
  EndpointWindow window;
  window.install({"h", 1, {"a", "b"}});
  window.observe({"a", 3});
  EXPECT_FALSE(window.take()) << "there is no session";
  window.begin_session("s1");
  auto report = window.take();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->sequence, 1U);
  ASSERT_EQ(report->observations.size(), 2U);
  EXPECT_EQ(report->observations[0].result, EndpointWindow::kNoObservedExchange) << "seen before the session";
  EXPECT_TRUE(report->observed.empty());
  window.delivered();
  EXPECT_FALSE(window.take()) << "nothing is new";
  window.observe({"b", 2});
  window.observe({"b", 7});
  window.observe({"stranger", 2});
  report = window.take();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->observations[1].result, 7);
  EXPECT_THAT(report->observed, ::testing::ElementsAre("b"));
}

TEST(EndpointWindow, AReportStaysTheSameUntilItIsTakenOrMeansNothingAnyMore) {  // TS-27
  EndpointWindow window;
  window.install({"h", 1, {"a", "b"}});
  window.begin_session("s1");
  const auto first = window.take();
  window.observe({"a", 2});
  const auto again = window.take();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->sequence, first->sequence);
  EXPECT_TRUE(again->observed.empty()) << "newer results wait";
  window.renew();
  EXPECT_FALSE(window.current(*first));
  const auto next = window.take();
  EXPECT_GT(next->sequence, first->sequence);
  EXPECT_THAT(next->observed, ::testing::ElementsAre("a"));
  window.install({"h2", 1, {"a"}});
  EXPECT_FALSE(window.current(*next));
  EXPECT_EQ(window.take()->policy_hash, "h2");
  window.install({"h3", 1, {}});
  ASSERT_TRUE(window.take()) << "that there are none any more is news";
  window.begin_session("s2");
  EXPECT_EQ(window.take()->sequence, 1U);
}

TEST(EndpointWindow, WithoutEndpointsNothingIsEverSent) {
  EndpointWindow window;
  window.install({"h", 1, {}});
  window.begin_session("s1");
  EXPECT_FALSE(window.take());
}

TEST(EndpointWindow, AtItsLimitEndpointsAreLeftOut) {
  Installed installed{"h", 1, {}};
  for (std::size_t i = 0; i <= EndpointWindow::kMaxEndpoints; ++i) installed.endpoint_ids.push_back(std::to_string(i));
  EndpointWindow window;
  window.install(installed);
  EXPECT_EQ(window.size(), EndpointWindow::kMaxEndpoints);
}

TEST(EndpointBox, KeepsTheNewestOfItsGenerationAndItsEndpoints) {  // TS-22, TS-25
  EndpointBox box;
  int wakes = 0;
  box.on_fill([&] { ++wakes; });
  box.install(4, {{{"rule", 0}, "a"}});
  box.observe(4, {"rule", 0}, 2);
  box.observe(4, {"rule", 0}, 6);
  box.observe(4, {"rule", 1}, 2);
  box.observe(3, {"rule", 0}, 3);
  EXPECT_EQ(wakes, 1);
  const auto seen = box.drain();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].result, 6);
  box.observe(4, {"rule", 0}, 2);
  box.install(5, {{{"rule", 0}, "a"}});
  EXPECT_TRUE(box.drain().empty());
}

TEST(LogQueue, DropsTheNewestAtItsLimitAndKeepsTheOrderOfWhatComesBack) {
  LogQueue queue;
  for (std::size_t i = 0; i <= LogQueue::kMaxLines; ++i) queue.push({{}, "INFO", "t", std::to_string(i), {}}, false);
  EXPECT_EQ(queue.dropped(), 1U);
  auto lines = queue.take(2);
  queue.put_back(std::move(lines));
  EXPECT_EQ(queue.take(1)[0].message, "0");
}

TEST(Settings, DeniedHttpIsRefuseUnlessItSaysExplain) {
  EXPECT_FALSE(read_settings({}).explain_denied_http);
  EXPECT_TRUE(read_settings({{"network.denied_http", std::string{"explain"}}}).explain_denied_http);
  EXPECT_FALSE(read_settings({{"network.denied_http", std::string{"other"}}}).explain_denied_http);
  EXPECT_FALSE(read_settings({{"network.denied_http", true}}).explain_denied_http);
  EXPECT_EQ(render(SettingBytes{"secret"}), "<bytes>");
}

api::TokenPair pair(std::uint64_t epoch, std::chrono::sys_seconds expires, std::string session = "s") {
  return {{Secret{"g" + std::to_string(epoch)}, expires}, {Secret{"b"}, expires}, std::move(session), epoch};
}

TEST(TokenSlots, AnExpiredTokenIsNeverHandedOut) {
  const std::chrono::sys_seconds expires{1000s};
  api::TokenSlots slots{pair(1, expires)};
  EXPECT_EQ(slots.gateway_authorization(expires - 1s)->reveal(), "Bearer g1");
  EXPECT_EQ(slots.gateway_authorization(expires).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(slots.sandbox_authorization(expires).status().code(), absl::StatusCode::kUnauthenticated);
}

TEST(TokenSlots, ARenewalThatIsNotOneChangesNothing) {
  const std::chrono::sys_seconds expires{1000s};
  api::TokenSlots slots{pair(2, expires)};
  EXPECT_FALSE(slots.replace(pair(1, expires)).ok()) << "older epoch";
  EXPECT_FALSE(slots.replace(pair(3, expires, "other")).ok()) << "another session";
  auto half = pair(3, expires);
  half.sandbox.token = Secret{};
  EXPECT_FALSE(slots.replace(half).ok());
  EXPECT_EQ(slots.gateway_authorization(expires - 1s)->reveal(), "Bearer g2");
  EXPECT_TRUE(slots.replace(pair(3, expires)).ok());
  EXPECT_EQ(slots.gateway_authorization(expires - 1s)->reveal(), "Bearer g3");
}

TEST(TokenSlots, RenewalComesAtFourFifthsOfTheShorterLife) {
  const std::chrono::sys_seconds expires{1000s};
  api::TokenSlots slots{pair(1, expires)};
  EXPECT_EQ(slots.until_renewal(expires - 100s, 0), 80s);
  EXPECT_EQ(slots.until_renewal(expires - 100s, 1.0), 73s);
  EXPECT_EQ(slots.until_renewal(expires + 5s, 0), 1s);
  EXPECT_EQ(api::TokenSlots{pair(1, {})}.until_renewal(expires, 0), 6h);
}

}  // namespace
}  // namespace openshell::supervisor
