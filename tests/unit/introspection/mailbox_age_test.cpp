// How old the messages of a mailbox are, and what they are called.
#include "actors/introspection/mailbox_age.hpp"

#include <gtest/gtest.h>

#include "actors/introspection/message_counter.hpp"

namespace openshell {
namespace {

using namespace std::chrono_literals;

class MailboxAgeOf : public testing::Test {
 protected:
  MailboxAge::TimePoint at(std::chrono::milliseconds time) const { return MailboxAge::TimePoint{} + 1h + time; }
  MailboxAge age_;
};

TEST_F(MailboxAgeOf, AnEmptyMailboxHasNoneAndNeedsNoProbe) {
  EXPECT_FALSE(age_.wants_probe(0, at(0ms), true));
  EXPECT_EQ(age_.oldest(0, at(5s)), 0ms);
}

TEST_F(MailboxAgeOf, WhatWaitsIsAsOldAsTheProbeAmongIt) {
  EXPECT_EQ(age_.oldest(3, at(0ms)), 1ms) << "something waits";
  EXPECT_TRUE(age_.wants_probe(3, at(0ms), false));
  EXPECT_EQ(age_.others(4), 3U) << "the probe is no message";
  EXPECT_FALSE(age_.wants_probe(4, at(1s), true)) << "one is enough";
  EXPECT_EQ(age_.oldest(4, at(4s)), 4s);
}

TEST_F(MailboxAgeOf, TheLastWaitHoldsWhileSomethingWaits) {
  EXPECT_TRUE(age_.wants_probe(3, at(0ms), false));
  age_.probed(at(700ms));
  EXPECT_TRUE(age_.wants_probe(5, at(700ms), false));
  EXPECT_EQ(age_.oldest(6, at(701ms)), 700ms);
  EXPECT_EQ(age_.oldest(6, at(1'600ms)), 900ms);
  age_.probed(at(1'600ms));
  EXPECT_FALSE(age_.wants_probe(0, at(1'600ms), false));
  EXPECT_EQ(age_.oldest(2, at(1'700ms)), 1ms) << "the mailbox was empty since";
}

TEST_F(MailboxAgeOf, ProbesKeepTheirPaceUnlessAReportNeedsOne) {
  EXPECT_TRUE(age_.wants_probe(1, at(0ms), false));
  age_.probed(at(0ms));
  EXPECT_FALSE(age_.wants_probe(1, at(99ms), false));
  EXPECT_TRUE(age_.wants_probe(1, at(99ms), true));
  age_.probed(at(99ms));
  EXPECT_FALSE(age_.wants_probe(1, at(198ms), false));
  EXPECT_TRUE(age_.wants_probe(1, at(199ms), false));
}

TEST_F(MailboxAgeOf, AProbeAloneIsNoMessageThatWaits) {
  EXPECT_TRUE(age_.wants_probe(1, at(0ms), false));
  EXPECT_EQ(age_.others(1), 0U);
  EXPECT_EQ(age_.oldest(1, at(9s)), 0ms);
}

TEST(MessageKind, IsTheNameThatTheInterfaceUses) {
  EXPECT_EQ(message_kind("openshell::gateway::Ask<openshell::v1::StopSandboxRequest>"), "StopSandboxRequest");
  EXPECT_EQ(message_kind("openshell::gateway::Resume"), "Resume");
  EXPECT_EQ(message_kind("std::shared_ptr<openshell::gateway::ComputeCall const>"), "ComputeCall");
  EXPECT_EQ(message_kind("std::vector<openshell::X, std::allocator<openshell::X> >"), "vector of X");
  EXPECT_EQ(message_kind(""), "");
}

}  // namespace
}  // namespace openshell
