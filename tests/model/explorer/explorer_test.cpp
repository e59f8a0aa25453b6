// A fixed share of the schedules that `./dev model` plays by the million, and what the explorer itself promises.
#include "tests/model/explorer/explorer.hpp"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace openshell::model {
namespace {

class Explorer : public ::testing::Test {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
};

void expect_none(const Outcome& outcome, std::uint64_t schedules) {
  EXPECT_EQ(outcome.schedules, schedules);
  EXPECT_FALSE(outcome.failure) << outcome.failure->text();
}

// ACK-18, ACK-28, ACK-33, ACK-36, ACK-47, ACT-31, ACT-33, TS-24, TS-25, TS-27, PP-06
TEST_F(Explorer, ACK_18_ACT_33_NoScheduleReordersLosesOrRepeatsWhatTheGatewayHears) {
  expect_none(explore(*find_world("status"), {.first_seed = 1, .schedules = 1'500}), 1'500);
}

// ACT-29, CX-43
TEST_F(Explorer, ACT_29_NoScheduleMakesTheExecRegistryRunTwiceForgetOrWait) {
  expect_none(explore(*find_world("exec"), {.first_seed = 1, .schedules = 6'000}), 6'000);
}

TEST_F(Explorer, ASeedRepeatsItsSchedule) {
  for (const auto& world : worlds()) {
    Stage stage;
    std::vector<std::vector<std::uint32_t>> taken;
    for (int i = 0; i < 2; ++i) {
      Choices choices{77};
      stage.begin(nullptr);
      EXPECT_FALSE(world.play(stage, choices));
      taken.push_back(choices.taken());
    }
    EXPECT_EQ(taken[0], taken[1]) << world.name;
    EXPECT_GT(taken[0].size(), 10U);
  }
}

/// Breaks when it drew a 7 and, later, something above 4.
const World kBroken{"broken", [](Stage& stage, Choices& choices) -> std::optional<Violation> {
                      bool seven = false;
                      for (int i = 0; i < 40; ++i) {
                        const auto drawn = choices.below(10);
                        if (stage.chart() != nullptr) stage.chart()->message(stage.chart_now(), "a", "b", std::to_string(drawn));
                        if (seven && drawn > 4) return Violation{"seven", "then " + std::to_string(drawn)};
                        seven = seven || drawn == 7;
                      }
                      return std::nullopt;
                    }};

TEST_F(Explorer, AFailureIsMadeAsSmallAsItGoesAndDrawn) {
  const auto outcome = explore(kBroken, {.first_seed = 1, .schedules = 100});
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->choices, (std::vector<std::uint32_t>{7, 5}));
  EXPECT_NE(outcome.failure->text().find("--replay 7,5"), std::string::npos);
  EXPECT_NE(outcome.failure->chart.find("7-"), std::string::npos) << outcome.failure->chart;
  Stage stage;
  EXPECT_TRUE(replay(kBroken, stage, outcome.failure->choices));
  EXPECT_FALSE(replay(kBroken, stage, {7, 4}));
}

TEST_F(Explorer, AChartHasAColumnForEachAndRunsDownwards) {
  Chart chart;
  chart.message(Chart::Time{1'500}, "poller", "client", "config");
  chart.message(Chart::Time{1'500}, "client", "poller", "answer");
  chart.note(Chart::Time{2'000}, "", "the end");
  EXPECT_EQ(chart.draw(),
            "               poller        client\n"
            "    1.500         +---config---->\n"
            "    1.500         <---answer----+\n"
            "    2.000  == the end           |\n");
}

}  // namespace
}  // namespace openshell::model
