#include "actors/gateway/session_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openshell::gateway {
namespace {

class Sessions : public ::testing::Test {
 protected:
  SessionOffer offer(const std::string& instance, std::uint64_t epoch, bool push = true) {
    SessionOffer out;
    out.sandbox_id = "box";
    out.instance_id = instance;
    out.connection_epoch = epoch;
    out.config_push = push;
    return out;
  }
  std::function<std::string()> ids = [this] { return "u" + std::to_string(++made); };
  NudgeAnswer answer(const std::string& id, bool unsupported = false) { return {"box", "s1", id, unsupported}; }
  int made = 0;
  SessionTable table;
};

TEST_F(Sessions, GW_AnOlderConnectionOfTheSameInstanceNeverDisplaces) {
  ASSERT_TRUE(table.connect(offer("i", 2), "s1", 0).ok());
  EXPECT_EQ(table.connect(offer("i", 1), "s2", 0).status().code(), absl::StatusCode::kUnavailable);
  auto replaced = table.connect(offer("i", 3), "s3", 0);
  ASSERT_TRUE(replaced.ok() && replaced->has_value());
  EXPECT_EQ((*replaced)->session_id, "s1");
  EXPECT_FALSE(table.end("box", "s1")) << "the old stream's end is not the new session's";
  EXPECT_TRUE(table.end("box", "s3"));
}

TEST_F(Sessions, GW_NudgesAreCoalescedToAtMostTwoPolls) {
  ASSERT_TRUE(table.connect(offer("i", 1), "s1", 0).ok());
  EXPECT_EQ(table.mark("box", ids, 0), "u1");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(table.mark("box", ids, 0)) << "one is outstanding";
  EXPECT_FALSE(table.answered(answer("other"), ids, 0));
  EXPECT_EQ(table.answered(answer("u1"), ids, 0), "u2") << "something changed meanwhile";
  EXPECT_FALSE(table.answered(answer("u2"), ids, 0));
  EXPECT_EQ(table.mark("box", ids, 0), "u3");
}

TEST_F(Sessions, GW_AnUnansweredNudgeIsGivenUpAfterAMinute) {
  ASSERT_TRUE(table.connect(offer("i", 1), "s1", 0).ok());
  (void)table.mark("box", ids, 0);
  (void)table.mark("box", ids, 0);
  table.heard("box", "s1", 59);
  EXPECT_TRUE(table.tick(ids, 59).nudges.empty());
  table.heard("box", "s1", 60);
  const auto due = table.tick(ids, 60);
  EXPECT_EQ(due.unanswered, 1U);
  ASSERT_EQ(due.nudges.size(), 1U) << "sent again because something changed";
}

TEST_F(Sessions, GW_WithoutTheFlagOrAfterUnsupportedThereIsNoNudge) {
  ASSERT_TRUE(table.connect(offer("i", 1, false), "s1", 0).ok());
  EXPECT_FALSE(table.mark("box", ids, 0));
  ASSERT_TRUE(table.connect(offer("i", 2), "s1", 0).ok());
  EXPECT_EQ(table.mark("box", ids, 0), "u1");
  (void)table.mark("box", ids, 0);
  EXPECT_FALSE(table.answered(answer("u1", true), ids, 0));
  EXPECT_FALSE(table.mark("box", ids, 0));
}

TEST_F(Sessions, GW_HeartbeatsEvery15SecondsAndSilenceOf45Ends) {
  ASSERT_TRUE(table.connect(offer("i", 1), "s1", 100).ok());
  EXPECT_TRUE(table.tick(ids, 114).heartbeats.empty());
  EXPECT_THAT(table.tick(ids, 115).heartbeats, ::testing::ElementsAre("box"));
  EXPECT_TRUE(table.tick(ids, 116).heartbeats.empty());
  EXPECT_TRUE(table.tick(ids, 144).silent.empty());
  EXPECT_THAT(table.tick(ids, 145).silent, ::testing::ElementsAre("box"));
}

}  // namespace
}  // namespace openshell::gateway
