#include "api/operator/actor_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "api/operator/actor_metrics.hpp"
#include "api/operator/actors_json.hpp"

namespace openshell::api {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kEpoch = "00000000deadbeef";

ActorSnapshot actor(const std::string& id, std::uint64_t handled = 0, std::uint64_t failed = 0, const std::string& kind = "outbox") {
  ActorSnapshot out;
  out.id = id;
  out.kind = kind;
  out.handled = handled;
  out.failed = failed;
  return out;
}

ActorChanges whole(std::vector<ActorSnapshot> actors) {
  ActorChanges out;
  out.whole = true;
  out.actors = std::move(actors);
  return out;
}

class Map : public testing::Test {
 protected:
  ShownProcess& supervisor(const std::string& id = "s1") {
    return *map_.ensure("supervisor:" + id, ProcessKind::supervisor, "default/" + id, now_);
  }
  boost::json::object json() { return boost::json::parse(actors_json(map_, kEpoch, now_)).as_object(); }

  ActorMap map_;
  ActorMap::Time now_ = ActorMap::Time{} + 1h;
};

TEST_F(Map, ItsNumberGrowsWithChangesOnly) {
  auto& process = supervisor();
  const auto before = map_.seq();
  map_.apply(process, whole({actor("a", 1)}), now_);
  EXPECT_GT(map_.seq(), before);
  const auto after = map_.seq();
  map_.apply(process, whole({actor("a", 1)}), now_ + 1s);
  map_.heard(process, 0, now_ + 2s);
  map_.sweep(now_ + 2s);
  EXPECT_EQ(map_.seq(), after);
  map_.apply(process, whole({}), now_ + 3s);
  EXPECT_GT(map_.seq(), after);
  EXPECT_TRUE(process.actors.empty());
}

// ACT-37: what `GET /actors` is, field by field.
TEST_F(Map, ACT_37_TheAnswerHasTheFieldsOfEveryActor) {
  auto one = actor("a", 12, 1);
  one.parent = "root";
  one.summary = "idle \"quoted\" <b>";
  one.waiting = 2;
  one.oldest_ms = 500;
  one.last_error = "refused";
  one.rates = {{"wake", 0.123}};
  map_.apply(supervisor(), whole({one}), now_);
  now_ += 2s;
  const auto answer = json();
  EXPECT_EQ(answer.at("epoch").as_string(), kEpoch);
  EXPECT_EQ(answer.at("seq").to_number<std::uint64_t>(), map_.seq());
  const auto& process = answer.at("processes").as_array().at(0).as_object();
  EXPECT_EQ(process.at("id").as_string(), "supervisor:s1");
  EXPECT_EQ(process.at("kind").as_string(), "supervisor");
  EXPECT_EQ(process.at("sandbox").as_string(), "default/s1");
  EXPECT_EQ(process.at("stale_ms").to_number<int>(), 2'000);
  EXPECT_FALSE(process.contains("note") || process.contains("left_out") || process.contains("stale"));
  const auto& shown = process.at("actors").as_array().at(0).as_object();
  for (const auto& [key, value] : std::map<std::string, boost::json::value>{
           {"id", "a"}, {"parent", "root"}, {"kind", "outbox"}, {"summary", "idle \"quoted\" <b>"}, {"last_error", "refused"}})
    EXPECT_EQ(shown.at(key), value) << key;
  for (const auto& [key, value] :
       std::map<std::string, int>{{"mailbox", 0}, {"waiting", 2}, {"handled", 12}, {"failed", 1}, {"restarts", 0}})
    EXPECT_EQ(shown.at(key).to_number<int>(), value) << key;
  EXPECT_EQ(shown.at("oldest_ms").to_number<int>(), 2'500) << "what waits goes on waiting";
  EXPECT_EQ(shown.at("rates").as_object().at("wake").as_double(), 0.12);
}

TEST_F(Map, AChangeHoldsTheProcessesThatChangedAndThoseThatAreGone) {
  map_.apply(supervisor("s1"), whole({actor("a")}), now_);
  map_.apply(supervisor("s2"), whole({actor("b")}), now_);
  const auto seq = map_.seq();
  map_.apply(supervisor("s2"), whole({actor("b", 1)}), now_);
  auto change = boost::json::parse(changes_json(map_, kEpoch, seq, now_)).as_object();
  ASSERT_EQ(change.at("processes").as_array().size(), 1U);
  EXPECT_EQ(change.at("processes").as_array()[0].as_object().at("id").as_string(), "supervisor:s2");
  EXPECT_TRUE(change.at("gone").as_array().empty());
  map_.remove("supervisor:s1");
  change = boost::json::parse(changes_json(map_, kEpoch, seq, now_)).as_object();
  EXPECT_EQ(change.at("gone").as_array().at(0).as_string(), "supervisor:s1");
}

TEST_F(Map, WhoIsTooFarBehindGetsEverything) {
  const auto old = map_.seq();
  for (int i = 0; i < 1'100; ++i) {
    supervisor(std::to_string(i));
    map_.remove("supervisor:" + std::to_string(i));
  }
  EXPECT_EQ(changes_json(map_, kEpoch, old, now_), "");
}

// ACT-39: silence shows after 15 s, a session that ended goes after 60 s.
TEST_F(Map, ACT_39_SilenceIsStaleAndAnEndedSessionIsForgotten) {
  auto& process = supervisor();
  map_.apply(process, whole({actor("a")}), now_);
  map_.heard(process, 1'000, now_);
  map_.sweep(now_ + 13'999ms);
  EXPECT_FALSE(process.stale);
  map_.sweep(now_ + 14s);
  EXPECT_TRUE(process.stale) << "its own age counts too";
  map_.heard(process, 0, now_ + 15s);
  EXPECT_FALSE(process.stale);
  map_.ended("supervisor:s1", now_ + 15s);
  map_.sweep(now_ + 74s);
  EXPECT_EQ(map_.processes().size(), 1U);
  map_.sweep(now_ + 75s);
  EXPECT_TRUE(map_.processes().empty());
}

TEST_F(Map, RatesOfAnActorThatFellSilentAreOver) {
  auto one = actor("a");
  one.rates = {{"wake", 5}};
  auto& process = supervisor();
  map_.apply(process, whole({one}), now_);
  map_.sweep(now_ + 2'499ms);
  EXPECT_FALSE(process.actors.at("a").snapshot.rates.empty());
  const auto seq = map_.seq();
  map_.sweep(now_ + 2'500ms);
  EXPECT_TRUE(process.actors.at("a").snapshot.rates.empty());
  EXPECT_GT(map_.seq(), seq);
}

TEST_F(Map, ProcessesAndTheAnswerAreBounded) {
  for (std::size_t i = 0; i < kMaxMapProcesses; ++i) ASSERT_NE(map_.ensure(std::to_string(i), ProcessKind::supervisor, "", now_), nullptr);
  EXPECT_EQ(map_.ensure("one more", ProcessKind::supervisor, "", now_), nullptr);
}

TEST_F(Map, AnAnswerBeyondItsBoundCountsWhoIsLeftOut) {
  std::vector<ActorSnapshot> many;
  for (int i = 0; i < 20'000; ++i) {
    many.push_back(actor("actor" + std::to_string(i)));
    many.back().summary = std::string(256, 's');
    many.back().last_error = std::string(256, 'e');
  }
  map_.apply(supervisor(), whole(std::move(many)), now_);
  const auto text = actors_json(map_, kEpoch, now_);
  EXPECT_LE(text.size(), kMaxActorsJson);
  const auto process = boost::json::parse(text).as_object().at("processes").as_array()[0].as_object();
  EXPECT_EQ(process.at("left_out").to_number<std::size_t>() + process.at("actors").as_array().size(), 20'000U);
}

// ACT-41: an actor that hangs reports nothing any more; what its mailbox held when it spoke last grows older in the answer and in the
// metric.
TEST_F(Map, ACT_41_WhatAMailboxHeldGrowsOlderWhileItsActorIsSilent) {
  auto hangs = actor("a");
  hangs.mailbox = 2;
  hangs.oldest_ms = 400;
  auto idle = actor("b", 0, 0, "poller");
  map_.apply(supervisor(), whole({hangs, idle}), now_);
  now_ += 3s;
  const auto shown = json().at("processes").as_array().at(0).as_object().at("actors").as_array();
  EXPECT_EQ(shown.at(0).as_object().at("oldest_ms").to_number<std::uint64_t>(), 3'400U);
  EXPECT_EQ(shown.at(1).as_object().at("oldest_ms").to_number<std::uint64_t>(), 0U) << "nothing waits there";
  const auto text = actor_metrics(map_, now_);
  EXPECT_THAT(text, HasSubstr("openshell_actor_oldest_message_age_seconds{process=\"supervisor\",kind=\"outbox\"} 3.400\n"));
  EXPECT_THAT(text, HasSubstr("openshell_actor_oldest_message_age_seconds{process=\"supervisor\",kind=\"poller\"} 0.000\n"));
}

TEST_F(Map, MetricsAreSummedByKindAndNeverFall) {
  auto one = actor("a", 10, 1);
  one.mailbox = 3;
  one.waiting = 1;
  one.oldest_ms = 1'250;
  map_.apply(supervisor("s1"), whole({one}), now_);
  map_.apply(supervisor("s2"), whole({actor("b", 5)}), now_);
  auto text = actor_metrics(map_, now_);
  EXPECT_THAT(text, HasSubstr("openshell_actors{process=\"supervisor\",kind=\"outbox\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("openshell_actor_mailbox_messages{process=\"supervisor\",kind=\"outbox\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("openshell_actor_handled_total{process=\"supervisor\",kind=\"outbox\"} 15\n"));
  EXPECT_THAT(text, HasSubstr("openshell_actor_failed_total{process=\"supervisor\",kind=\"outbox\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("openshell_actor_oldest_message_age_seconds{process=\"supervisor\",kind=\"outbox\"} 1.250\n"));
  map_.apply(supervisor("s1"), whole({actor("a", 2)}), now_);  // it was started again
  map_.remove("supervisor:s2");
  text = actor_metrics(map_, now_);
  EXPECT_THAT(text, HasSubstr("openshell_actor_handled_total{process=\"supervisor\",kind=\"outbox\"} 17\n"));
  EXPECT_THAT(text, HasSubstr("openshell_actors{process=\"supervisor\",kind=\"outbox\"} 1\n"));
}

// ACT-39: what a sandbox says of itself is never a label, and what a supervisor says is one only in its form and number.
TEST_F(Map, ACT_39_NobodyElseWritesMetricLabels) {
  map_.apply(*map_.ensure("sandbox:s1", ProcessKind::sandbox, "default/s1", now_), whole({actor("x", 1, 0, "evil_kind")}), now_);
  map_.apply(supervisor(), whole({actor("a", 1, 0, "a\"} 1\nforged{x=\""), actor("b", 1, 0, "UPPER"), actor("c", 1, 0, "fine_1")}), now_);
  auto text = actor_metrics(map_, now_);
  EXPECT_THAT(text, Not(HasSubstr("evil_kind")));
  EXPECT_THAT(text, Not(HasSubstr("forged")));
  EXPECT_THAT(text, HasSubstr("openshell_actors{process=\"supervisor\",kind=\"other\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("openshell_actors{process=\"supervisor\",kind=\"fine_1\"} 1\n"));
  std::vector<ActorSnapshot> many;
  for (std::size_t i = 0; i < kMaxMetricKinds + 10; ++i) many.push_back(actor("m" + std::to_string(i), 0, 0, "kind_" + std::to_string(i)));
  ActorMap other;
  other.apply(*other.ensure("supervisor:s1", ProcessKind::supervisor, "", now_), whole(many), now_);
  EXPECT_THAT(actor_metrics(other, now_), HasSubstr("openshell_actors{process=\"supervisor\",kind=\"other\"} 10\n"));
}

}  // namespace
}  // namespace openshell::api
