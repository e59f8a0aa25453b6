#include "observability/fault_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace openshell::fault {
namespace {

TEST(FaultPlan, NothingHappensWithoutAPlan) {
  auto plan = Plan::parse("");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE((*plan)->empty());
  EXPECT_EQ((*plan)->pass("driver.create.end"), Effect::kNone);
}

TEST(FaultPlan, AProcessDiesAtThePassageThatWasSaidAndOnlyThere) {
  auto plan = Plan::parse("a.b.end=kill,c.d.begin=hang@3");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->pass("a.b.begin"), Effect::kNone);
  EXPECT_EQ((*plan)->pass("a.b.end"), Effect::kKill);
  EXPECT_EQ((*plan)->pass("a.b.end"), Effect::kNone);
  std::vector<Effect> passed;
  for (int i = 0; i < 4; ++i) passed.push_back((*plan)->pass("c.d.begin"));
  EXPECT_EQ(passed, (std::vector<Effect>{Effect::kNone, Effect::kNone, Effect::kHang, Effect::kNone}));
}

std::vector<Effect> draws(const char* text, int count) {
  auto plan = Plan::parse(text);
  EXPECT_TRUE(plan.ok());
  std::vector<Effect> out;
  for (int i = 0; i < count; ++i) out.push_back((*plan)->pass("x"));
  return out;
}

TEST(FaultPlan, AFailingStepFailsInTheSameOrderForTheSameSeed) {
  const auto first = draws("x=fail:30:7", 1000);
  EXPECT_EQ(first, draws("x=fail:30:7", 1000));
  EXPECT_NE(first, draws("x=fail:30:8", 1000));
  const auto failed = std::count(first.begin(), first.end(), Effect::kFail);
  EXPECT_GT(failed, 240);
  EXPECT_LT(failed, 360);
  EXPECT_EQ(draws("x=fail:0", 50), std::vector<Effect>(50, Effect::kNone));
  EXPECT_EQ(draws("x=fail:100", 50), std::vector<Effect>(50, Effect::kFail));
}

TEST(FaultPlan, WhatIsNotUnderstoodIsNamed) {
  for (const char* wrong : {"a", "a=", "=kill", "a=kil", "a=kill@0", "a=kill@x", "a=fail", "a=fail:101", "a=fail:x", "a=fail:5:x",
                            "a=kill,a=hang", "a=kill,,b=kill"}) {
    const auto plan = Plan::parse(wrong);
    ASSERT_FALSE(plan.ok()) << wrong;
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(plan.status().message().find("is not NAME=kill"), absl::string_view::npos) << wrong;
  }
}

}  // namespace
}  // namespace openshell::fault
