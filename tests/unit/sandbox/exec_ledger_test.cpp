#include "actors/sandbox/exec_ledger.hpp"

#include <gtest/gtest.h>

namespace openshell::sandbox {
namespace {

using Action = ExecLedger::Admission::Action;

class Registry : public ::testing::Test {
 protected:
  ExecLedger ledger{"g", {.accepted = 5, .retained = 2}};
  std::set<std::string> attached;
  ExecLedger::Admission admit(const std::string& id, const std::string& digest = "d", std::uint64_t expires = 100, std::uint64_t now = 10) {
    return ledger.admit(id, digest, false, expires, now, [this](const ExecLedger::Entry& e) { return attached.contains(e.process_id); });
  }
  std::string run(const std::string& id, bool exit = true) {
    const auto admission = admit(id);
    EXPECT_EQ(admission.action, Action::start) << admission.error.message;
    ledger.launched(admission.process_id, nullptr);
    if (exit) ledger.exited(admission.process_id, {false, 0});
    return admission.process_id;
  }
};

TEST_F(Registry, CX_41_AnIdIsExecutedOnce) {  // CX-39
  const auto id = run("r1", false);
  EXPECT_EQ(id, "g:exec:1");
  EXPECT_EQ(admit("r1").action, Action::resume);
  attached.insert(id);
  EXPECT_EQ(admit("r1").error.message, "prior exec attachment is still being released");
  EXPECT_EQ(admit("r1", "other").error.message, "exec request ID was reused with a different payload");
  ledger.exited(id, {false, 3});
  attached.clear();
  ledger.reclaim(id);
  EXPECT_EQ(admit("r1").error.message, "exec request has expired; it cannot be executed again");
  EXPECT_EQ(ledger.find(id)->status->value, 3) << "the status stays when the handle goes";
}

TEST_F(Registry, ExpiryHasNoLeewayAndNeverEndsARunningProcess) {
  EXPECT_EQ(admit("r1", "d", 100, 100).error.message, "exec request has expired; it cannot be executed again");
  EXPECT_EQ(admit("r1", "d", 100, 99).action, Action::start);
}

TEST_F(Registry, CX_40_CX_41_AcceptedIdsOfAGenerationAreBoundedFailuresIncluded) {
  const auto failed = admit("f");
  ledger.failed(failed.process_id, "no such program");
  EXPECT_EQ(admit("f").error.message, "no such program") << "a failure is not tried again under its id";
  for (int i = 0; i < 4; ++i) run("r" + std::to_string(i));
  const auto refused = admit("one more");
  EXPECT_EQ(refused.action, Action::refuse);
  EXPECT_EQ(refused.error.kind, boundary::ErrorKind::unavailable);
  EXPECT_EQ(refused.error.message, "boundary generation exec request limit reached");
  EXPECT_EQ(ExecLedger::Limits{}.accepted, 4'096u);
  EXPECT_EQ(ExecLedger::Limits{}.retained, 64u);
}

TEST_F(Registry, RetainedHandlesAreBoundedAndAnExitedOneMakesRoom) {
  const auto a = run("a");
  run("b", false);
  const auto c = admit("c");
  EXPECT_EQ(c.action, Action::start);
  EXPECT_EQ(c.reclaimed, a);
  EXPECT_EQ(admit("d").error.message, "retained exec process limit reached") << "both run";
}

TEST_F(Registry, AnExitSeenBeforeTheLaunchIsAnsweredCounts) {
  const auto a = admit("a");
  ledger.exited(a.process_id, {true, 9});
  ledger.launched(a.process_id, nullptr);
  EXPECT_EQ(ledger.find(a.process_id)->phase, ExecLedger::Phase::exited);
}

TEST_F(Registry, MainIsOne) {
  EXPECT_TRUE(ledger.reserve_main());
  EXPECT_FALSE(ledger.reserve_main());
  ledger.forget_main();
  EXPECT_TRUE(ledger.reserve_main());
  EXPECT_EQ(ledger.main_id(), "g:main:0");
}

}  // namespace
}  // namespace openshell::sandbox
