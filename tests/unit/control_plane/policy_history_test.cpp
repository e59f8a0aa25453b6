#include "actors/gateway/policy_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openshell::gateway {
namespace {

using ::testing::ElementsAre;

class History : public ::testing::Test {
 protected:
  void add() { history.append("row", {}, "hash", {}, 1'000); }
  pb::PolicyStatus status(std::uint32_t version) { return history.find(version)->value.status(); }
  PolicyHistory::Report report(std::uint32_t version, bool loaded, const std::string& error = {}) {
    auto out = *history.report(version, loaded, error, current, 2'000);
    current = out.current;
    return out;
  }
  PolicyHistory history;
  std::uint32_t current = 0;
};

TEST_F(History, ACK_TheExampleOfTheInterfaceAndItsReplay) {
  add();
  report(1, true);
  EXPECT_EQ(current, 1U);
  add();
  EXPECT_EQ(status(1), pb::POLICY_STATUS_SUPERSEDED);
  report(2, false, "bad rule");
  EXPECT_EQ(current, 1U);
  add();
  EXPECT_EQ(status(2), pb::POLICY_STATUS_FAILED) << "FAILED is never superseded";
  report(3, true);
  EXPECT_EQ(current, 3U);
  EXPECT_FALSE(report(1, true).changed);
  EXPECT_FALSE(report(2, false, "bad rule").changed);
  EXPECT_FALSE(report(3, true).changed);
  EXPECT_EQ(current, 3U);
}

TEST_F(History, ACK_FailedThenLoadedOfOneVersionIsValid) {  // ACK-49
  add();
  report(1, false, "no");
  EXPECT_TRUE(report(1, true).changed);
  EXPECT_EQ(status(1), pb::POLICY_STATUS_LOADED);
  EXPECT_TRUE(history.find(1)->value.load_error().empty());
  EXPECT_TRUE(report(1, false, "a new process could not").changed);
  EXPECT_EQ(current, 1U);
}

TEST_F(History, ACK_LoadedForASupersededRevisionChangesNoRowAndRaisesTheCurrentVersion) {  // ACK-49
  add();
  add();
  const auto out = report(1, true);
  EXPECT_TRUE(out.versions.empty());
  EXPECT_EQ(current, 1U);
  report(2, true);
  EXPECT_FALSE(report(1, true).changed);
  EXPECT_EQ(current, 2U) << "it only ever rises";
  EXPECT_FALSE(report(1, false, "x").changed);
  EXPECT_EQ(status(1), pb::POLICY_STATUS_SUPERSEDED);
}

TEST_F(History, ACK_AnUnknownVersionIsNotFound) {
  EXPECT_EQ(history.report(1, true, "", 0, 0).status().message(), "policy revision not found");
}

TEST_F(History, GW_ALoadedRevisionSupersedesWhatIsOlder) {
  add();
  EXPECT_THAT(history.append("row", {}, "h", {}, 0), ElementsAre(1U, 2U));
  EXPECT_THAT(history.retire_all(), ElementsAre(2U));
}

}  // namespace
}  // namespace openshell::gateway
