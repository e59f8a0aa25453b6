#include "api/operator/actor_watch.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

#include "tests/unit/operator/fake_source.hpp"

namespace openshell::api {
namespace {

using namespace std::chrono_literals;

class Watch : public testing::Test {
 protected:
  Watch() {
    source_->actors = {test::some_actor("gateway_root")};
    for (const char* id : {"s1"}) source_->sessions_now[id] = "session-1";
  }
  ~Watch() override { watch_->stop(); }

  /// Runs what is due until `condition`; a limit that only a fault reaches.
  bool until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 5s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      io_.restart();
      io_.run_one_for(20ms);
    }
    return true;
  }
  void settle() {
    io_.restart();
    io_.poll();
  }
  const ShownProcess* process(const std::string& id) {
    const auto it = watch_->map().processes().find(id);
    return it == watch_->map().processes().end() ? nullptr : &it->second;
  }
  std::string summary(const std::string& id, const std::string& actor) {
    const auto* found = process(id);
    if (found == nullptr || !found->actors.contains(actor)) return {};
    return found->actors.at(actor).snapshot.summary;
  }
  bool supervisor_says(const std::string& bytes, const std::string& id = "s1") {
    if (!until([&] { return source_->supervisors.contains(id); })) return false;
    source_->supervisors[id]->write(bytes, [] {});
    settle();
    return true;
  }

  boost::asio::io_context io_;
  std::shared_ptr<test::FakeSource> source_ = std::make_shared<test::FakeSource>();
  std::shared_ptr<ActorWatch> watch_ = std::make_shared<ActorWatch>(
      io_.get_executor(), source_, "g1",
      ActorWatch::Times{.pace = 20ms, .first = 300ms, .linger = 100ms, .after_end = 50ms, .after_error = 400ms});
};

// ACT-38, ACT-39: nobody is asked while nobody looks.
TEST_F(Watch, ACT_39_WithoutAWatcherNothingIsOpened) {
  io_.run_for(100ms);
  EXPECT_EQ(source_->opens, 0);
  EXPECT_EQ(source_->asked_changes, 0);
}

TEST_F(Watch, ACT_39_WhileSomebodyWatchesTheActorsOfAllThreeProcessesAreKnown) {
  const auto ticket = watch_->watch();
  ASSERT_TRUE(supervisor_says(test::snapshot_frame(7, 1, "first")));
  ASSERT_TRUE(until([&] { return !summary("supervisor:s1", "policy_poller").empty(); }));
  EXPECT_EQ(summary("supervisor:s1", "policy_poller"), "first");
  EXPECT_EQ(summary("sandbox:s1", "exec_registry"), "first");
  EXPECT_EQ(process("sandbox:s1")->kind, ProcessKind::sandbox);
  EXPECT_EQ(process("supervisor:s1")->sandbox, "default/s1");
  EXPECT_NE(process("gateway:g1"), nullptr);
  EXPECT_EQ(process("gateway:g1")->actors.count("gateway_root"), 1U);
  ASSERT_TRUE(supervisor_says(test::snapshot_frame(7, 2, "second")));
  EXPECT_TRUE(until([&] { return summary("supervisor:s1", "policy_poller") == "second"; }));
  EXPECT_EQ(source_->inquired, 0) << "nobody is polled";
}

TEST_F(Watch, ACT_39_TheFirstThingSaidIsWatch) {
  const auto ticket = watch_->watch();
  ASSERT_TRUE(until([&] { return source_->supervisors.contains("s1"); }));
  std::string bytes;
  source_->supervisors["s1"]->read([&](std::string got) { bytes = std::move(got); }, [](absl::Status) {});
  settle();
  ActorsFrameDecoder decoder{kMaxActorsRequest};
  ASSERT_TRUE(decoder.append(bytes).ok());
  actors_wire::ToSupervisor message;
  ASSERT_TRUE(message.ParseFromString(decoder.next().value_or("x")));
  EXPECT_TRUE(message.has_watch() && message.watch().sandbox_runtime());
}

TEST_F(Watch, ACT_39_NeverMoreThan32RelaysAreBeingOpened) {
  source_->claim_at_once = false;
  for (int i = 0; i < 40; ++i) source_->sessions_now["s" + std::to_string(i)] = "session";
  const auto ticket = watch_->watch();
  ASSERT_TRUE(until([&] { return source_->waiting.size() == ActorWatch::kMaxOpening; }));
  io_.restart();
  io_.run_for(100ms);
  EXPECT_EQ(source_->opens, 32);
  source_->claim();
  ASSERT_TRUE(until([&] { return source_->opens == 40; }));
  EXPECT_EQ(source_->waiting.size(), 8U);
}

TEST_F(Watch, ACT_39_ALateAnswerForASessionThatEndedOpensNoSecondRelayOfTheNext) {
  source_->claim_at_once = false;
  const auto ticket = watch_->watch();
  ASSERT_TRUE(until([&] { return source_->waiting.size() == 1; }));
  source_->sessions_now["s1"] = "session-2";
  ASSERT_TRUE(until([&] { return source_->waiting.size() == 2; }));
  auto late = std::move(source_->waiting.front());
  source_->waiting.erase(source_->waiting.begin());
  late.second(absl::UnavailableError("the session ended"));
  io_.restart();
  io_.run_for(100ms);
  EXPECT_EQ(source_->opens, 2);
  source_->claim();
  ASSERT_TRUE(supervisor_says(test::snapshot_frame(7, 1, "second session")));
  EXPECT_TRUE(until([&] { return summary("supervisor:s1", "policy_poller") == "second session"; }));
}

// Two questions may be on their way at once: what every look asks, and what a page asks.
TEST_F(Watch, AnOlderAnswerThatComesSecondTakesNothingBack) {
  source_->hold_changes = true;
  const auto ticket = watch_->watch();
  watch_->refresh_own([] {});
  ASSERT_TRUE(until([&] { return source_->held_changes.size() >= 2; }));
  const auto answer = [&](std::uint64_t seq, const std::string& said) {
    ActorChanges out;
    out.seq = seq;
    out.whole = true;
    out.actors = {test::some_actor("gateway_root", said)};
    source_->held_changes.back()(out);
    source_->held_changes.pop_back();
    settle();
  };
  answer(5, "newer");
  EXPECT_EQ(summary("gateway:g1", "gateway_root"), "newer");
  answer(4, "older");
  EXPECT_EQ(summary("gateway:g1", "gateway_root"), "newer");
  source_->held_changes.clear();
  ASSERT_TRUE(until([&] { return !source_->held_changes.empty(); }));
  EXPECT_EQ(source_->asked_since, 5U);
}

TEST_F(Watch, ACT_39_RelaysStayWhileOneOfTwoWatchesAndGoAfterTheLast) {
  auto one = watch_->watch();
  auto other = watch_->watch();
  ASSERT_TRUE(until([&] { return source_->supervisors.contains("s1"); }));
  bool closed = false;
  source_->supervisors["s1"]->on_abort([&](absl::Status) { closed = true; });
  one.reset();
  io_.restart();
  io_.run_for(200ms);
  EXPECT_FALSE(closed);
  other.reset();
  EXPECT_TRUE(until([&] { return closed; }));
  const auto opens = source_->opens.load();
  const auto asked = source_->asked_changes.load();
  io_.restart();
  io_.run_for(100ms);
  EXPECT_EQ(source_->opens, opens);
  EXPECT_EQ(source_->asked_changes, asked);
  const auto again = watch_->watch();
  EXPECT_TRUE(until([&] { return source_->opens > opens; }));
}

TEST_F(Watch, ACT_39_AStreamThatIsNoneEndsAndIsNotAskedAgainSoon) {
  const auto ticket = watch_->watch();
  ASSERT_TRUE(supervisor_says(std::string("\0\0\0\0", 4)));
  ASSERT_TRUE(until([&] { return process("supervisor:s1") != nullptr && !process("supervisor:s1")->note.empty(); }));
  EXPECT_EQ(source_->opens, 1);
  io_.restart();
  io_.run_for(200ms);
  EXPECT_EQ(source_->opens, 1);
  EXPECT_TRUE(until([&] { return source_->opens == 2; })) << "later it is";
}

TEST_F(Watch, ACT_39_WhatIsNoMessageOfTheStreamEndsIt) {
  const auto ticket = watch_->watch();
  ASSERT_TRUE(supervisor_says(std::string("\0\0\0\3abc", 7)));
  EXPECT_TRUE(until([&] { return process("supervisor:s1") != nullptr && !process("supervisor:s1")->note.empty(); }));
}

TEST_F(Watch, ACT_39_ARefusalIsShownAndNotRepeatedInThatSession) {
  source_->refuse = true;
  const auto ticket = watch_->watch();
  ASSERT_TRUE(until([&] { return process("supervisor:s1") != nullptr && !process("supervisor:s1")->note.empty(); }));
  EXPECT_EQ(process("supervisor:s1")->note, "unsupported internal service: openshell.actors/1");
  io_.restart();
  io_.run_for(200ms);
  EXPECT_EQ(source_->opens, 1);
  source_->refuse = false;
  source_->sessions_now["s1"] = "session-2";
  EXPECT_TRUE(until([&] { return source_->opens == 2; })) << "another session, another supervisor";
}

TEST_F(Watch, ACT_39_ANewEpochReplacesEverythingOfTheOldOne) {
  const auto ticket = watch_->watch();
  ASSERT_TRUE(supervisor_says(test::snapshot_frame(7, 9, "old")));
  ASSERT_TRUE(until([&] { return summary("supervisor:s1", "policy_poller") == "old"; }));
  ASSERT_TRUE(supervisor_says(test::snapshot_frame(8, 1, "new")));
  EXPECT_TRUE(until([&] { return summary("supervisor:s1", "policy_poller") == "new"; }));
}

TEST_F(Watch, TheEndOfASessionIsSeen) {
  const auto ticket = watch_->watch();
  ASSERT_TRUE(supervisor_says(test::snapshot_frame(7, 1, "x")));
  source_->sessions_now.clear();
  EXPECT_TRUE(until([&] {
    return process("supervisor:s1") != nullptr && process("supervisor:s1")->ended.has_value() && process("supervisor:s1")->stale;
  }));
}

TEST_F(Watch, ASingleQuestionWaitsForWhatIsToCome) {
  bool answered = false;
  watch_->when_known([&] { answered = true; });
  settle();
  EXPECT_FALSE(answered);
  ASSERT_TRUE(supervisor_says(test::snapshot_frame(7, 1, "x")));
  EXPECT_TRUE(until([&] { return answered; }));
}

TEST_F(Watch, ASingleQuestionDoesNotWaitForASilentSupervisor) {
  const auto begun = std::chrono::steady_clock::now();
  bool answered = false;
  watch_->when_known([&] { answered = true; });
  ASSERT_TRUE(until([&] { return answered; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 300ms);
}

TEST_F(Watch, OneActorIsAskedItself) {
  std::string said;
  const auto keep = [&](absl::StatusOr<ActorSnapshot> answer) {
    said = answer.ok() ? answer->summary : std::string{answer.status().message()};
  };
  watch_->inspect("gateway:g1", "gateway_root", keep);
  settle();
  EXPECT_EQ(said, "asked itself");
  watch_->inspect("gateway:g1", "stuck", keep);
  settle();
  EXPECT_EQ(said, "the actor does not answer");
  watch_->inspect("sandbox:s1", "exec_registry", keep);
  EXPECT_NE(said.find("only actors of"), std::string::npos);
  const auto ticket = watch_->watch();
  ASSERT_TRUE(until([&] { return source_->supervisors.contains("s1"); }));
  settle();
  watch_->inspect("supervisor:s1", "policy_poller", keep);
  actors_wire::ToGateway message;
  message.mutable_inspected()->set_request(1);
  fill_actor(test::some_actor("policy_poller", "its own word"), *message.mutable_inspected()->mutable_actor());
  ASSERT_TRUE(supervisor_says(encode_actors_frame(message)));
  EXPECT_TRUE(until([&] { return said == "its own word"; }));
}

}  // namespace
}  // namespace openshell::api
