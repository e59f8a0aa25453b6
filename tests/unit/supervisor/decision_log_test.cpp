// What the supervisor remembers of its decisions, and how it gives them away.
#include "programs/supervisor/decision_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "egress/generation.hpp"
#include "policy/decision_record.hpp"
#include "programs/supervisor/decision_relay.hpp"

namespace openshell::supervisor {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using WallTime = DecisionLog::WallTime;

constexpr std::size_t kAll = 100'000;

egress::Generation generation() {
  egress::Generation out;
  out.number = 7;
  out.hash = PolicyHash{std::string(64, 'a')};
  return out;
}

void decide(DecisionLog& log, const std::string& path, const std::string& secret = "") {
  const std::vector<policy::QueryParameter> query{{"token", secret}};
  const policy::Request request{"GET", path, secret.empty() ? std::span<const policy::QueryParameter>{} : query};
  log.decided(generation(), {"api.test", 443, {"/usr/bin/curl", {}, {}}}, &request, policy::Verdict::deny);
}

TEST(DecisionLog, KeepsTheNewestTenThousandAndCountsTheRest) {
  DecisionLog log;
  for (int i = 0; i <= 10'000; ++i) decide(log, "/" + std::to_string(i));
  const auto all = log.snapshot({}, kAll);
  EXPECT_THAT(all.lines, SizeIs(10'000));
  EXPECT_EQ(all.dropped, 1U);
  EXPECT_THAT(*all.lines.front(), HasSubstr("\"path\":\"/1\""));
  EXPECT_THAT(*all.lines.back(), HasSubstr("\"path\":\"/10000\""));
  const auto newest = log.snapshot({}, 2);
  ASSERT_THAT(newest.lines, SizeIs(2));
  EXPECT_THAT(*newest.lines.front(), HasSubstr("\"path\":\"/9999\""));
}

TEST(DecisionLog, HasABoundInBytes) {
  DecisionLog measure;
  decide(measure, "/1");
  const auto one = measure.snapshot({}, kAll).lines.front()->size();
  DecisionLog log{{.records = 100, .bytes = 3 * one}};
  for (int i = 1; i <= 3; ++i) decide(log, "/" + std::to_string(i));
  EXPECT_EQ(log.snapshot({}, kAll).dropped, 0U);
  decide(log, "/4");
  EXPECT_THAT(log.snapshot({}, kAll).lines, SizeIs(3));
  EXPECT_EQ(log.snapshot({}, kAll).dropped, 1U);
}

TEST(DecisionLog, ADecisionThatIsTooLargeIsCountedOnly) {
  DecisionLog log;
  decide(log, "/" + std::string(policy::kMaxRecordBytes, 'a'));
  decide(log, "/small");
  const auto all = log.snapshot({}, kAll);
  EXPECT_THAT(all.lines, SizeIs(1));
  EXPECT_EQ(all.dropped, 1U);
}

TEST(DecisionLog, NoValueOfARequestIsThere) {
  DecisionLog log;
  decide(log, "/v1", "sesame");
  const auto line = *log.snapshot({}, kAll).lines.front();
  EXPECT_THAT(line, Not(HasSubstr("sesame")));
  const auto record = policy::parse_record(line, "log");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->generation, 7U);
  EXPECT_EQ(record->policy_hash, std::string(64, 'a'));
}

TEST(DecisionLog, SinceATime) {
  WallTime now{std::chrono::seconds{1'000}};
  DecisionLog log{{}, [&now] { return now; }};
  decide(log, "/early");
  now += std::chrono::seconds{10};
  decide(log, "/late");
  EXPECT_THAT(log.snapshot(WallTime{std::chrono::seconds{1'000}}, kAll).lines, SizeIs(2));
  const auto late = log.snapshot(WallTime{std::chrono::seconds{1'001}}, kAll);
  ASSERT_THAT(late.lines, SizeIs(1));
  EXPECT_THAT(*late.lines.front(), HasSubstr("/late"));
}

TEST(DecisionRequest, IsOneObjectWithTwoMembers) {
  EXPECT_EQ(parse_decision_request("{}")->limit, 10'000U);
  const auto both = parse_decision_request(R"({"since":"2026-01-02T03:04:05.006Z","limit":5})");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->limit, 5U);
  EXPECT_EQ(policy::show_record_time(*both->since), "2026-01-02T03:04:05.006Z");
  for (const char* bad : {"", "[]", "x", R"({"limit":0})", R"({"limit":-1})", R"({"since":7})", R"({"since":"now"})", R"({"other":1})"}) {
    EXPECT_FALSE(parse_decision_request(bad).ok()) << bad;
  }
}

/// A peer that says `request` and takes what it is told.
class Peer final : public egress::ByteStream {
 public:
  explicit Peer(std::vector<std::string> request) : request_{std::move(request)} {}
  void read(ReadDone done) override {
    if (next_ == request_.size()) return done(std::string{});
    done(request_[next_++]);
  }
  void write(std::string bytes, WriteDone done) override {
    written += bytes;
    done(broken ? absl::AbortedError("gone") : absl::OkStatus());
  }
  void shutdown_write() override { ended = true; }
  void reset() override { was_reset = true; }

  std::string written;
  bool ended = false, was_reset = false, broken = false;

 private:
  std::vector<std::string> request_;
  std::size_t next_ = 0;
};

struct Served {
  std::shared_ptr<Peer> peer;
  std::shared_ptr<int> ended = std::make_shared<int>();
  std::shared_ptr<TimerThread> timers = std::make_shared<TimerThread>();
};
Served serve(const std::shared_ptr<DecisionLog>& log, std::vector<std::string> request, bool broken = false) {
  Served out{std::make_shared<Peer>(std::move(request))};
  out.peer->broken = broken;
  std::make_shared<DecisionRelay>(out.peer, log, out.timers, [ended = out.ended] { ++*ended; })->run();
  return out;
}

TEST(DecisionRelay, GivesTheRecordsAndSaysThatItIsAll) {
  const auto log = std::make_shared<DecisionLog>();
  for (int i = 0; i < 500; ++i) decide(*log, "/" + std::to_string(i));
  const auto got = serve(log, {"{\"lim", "it\":300}\n"});
  EXPECT_TRUE(got.peer->ended);
  EXPECT_EQ(*got.ended, 0) << "the other side has a moment to read the end";
  EXPECT_EQ(std::count(got.peer->written.begin(), got.peer->written.end(), '\n'), 301);
  EXPECT_TRUE(got.peer->written.ends_with("\n{\"end\":true,\"dropped\":0}\n"));
}

TEST(DecisionRelay, WhatIsNoRequestGetsNothing) {
  const auto log = std::make_shared<DecisionLog>();
  decide(*log, "/");
  for (const auto& request : std::vector<std::vector<std::string>>{
           {}, {"{}"}, {"nonsense\n"}, {"{\"limit\":0}\n"}, {std::string(DecisionRelay::kMaxRequestBytes + 1, ' ')}}) {
    const auto got = serve(log, request);
    EXPECT_TRUE(got.peer->was_reset);
    EXPECT_EQ(got.peer->written, "");
    EXPECT_EQ(*got.ended, 1);
  }
  const auto gone = serve(log, {"{}\n"}, true);
  EXPECT_TRUE(gone.peer->was_reset);
  EXPECT_EQ(*gone.ended, 1);
}

}  // namespace
}  // namespace openshell::supervisor
