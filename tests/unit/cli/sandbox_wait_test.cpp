#include "cli/sandbox_wait.hpp"

#include <gtest/gtest.h>

#include "openshell.pb.h"

namespace openshell::cli {
namespace {

v1::Sandbox in(v1::SandboxPhase phase, const std::string& reason = "") {
  v1::Sandbox sandbox;
  sandbox.mutable_status()->set_phase(phase);
  if (!reason.empty()) {
    auto& condition = *sandbox.mutable_status()->add_conditions();
    condition.set_type("Ready");
    condition.set_status("False");
    condition.set_reason(reason);
    condition.set_message("why");
  }
  return sandbox;
}

TEST(SandboxWait, GoesOnWhileTheGoalCanStillBeReached) {
  for (auto phase : {v1::SANDBOX_PHASE_PROVISIONING, v1::SANDBOX_PHASE_STARTING, v1::SANDBOX_PHASE_UNKNOWN, v1::SANDBOX_PHASE_STOPPING})
    EXPECT_FALSE(settled(Goal::ready, in(phase)).has_value()) << phase;
  EXPECT_FALSE(settled(Goal::stopped, in(v1::SANDBOX_PHASE_READY)).has_value());
  EXPECT_FALSE(settled(Goal::exit, in(v1::SANDBOX_PHASE_ERROR, "ContainerExited")).has_value());
  EXPECT_FALSE(settled(Goal::deleted, in(v1::SANDBOX_PHASE_DELETING)).has_value());
}

TEST(SandboxWait, EndsWithWhatWasWaitedFor) {
  EXPECT_TRUE(settled(Goal::ready, in(v1::SANDBOX_PHASE_READY))->ok());
  EXPECT_TRUE(settled(Goal::stopped, in(v1::SANDBOX_PHASE_STOPPED))->ok());
  auto done = in(v1::SANDBOX_PHASE_COMPLETED);
  done.mutable_status()->set_exit_code(0);
  EXPECT_TRUE(settled(Goal::exit, done)->ok());
}

TEST(SandboxWait, SaysWhyItCanNotBeReachedAnyMore) {
  EXPECT_EQ(settled(Goal::ready, in(v1::SANDBOX_PHASE_ERROR, "StartFailed"))->message(), "StartFailed: why while waiting for Ready");
  EXPECT_EQ(settled(Goal::ready, in(v1::SANDBOX_PHASE_ERROR))->message(), "sandbox entered Error while waiting for Ready");
  EXPECT_FALSE(settled(Goal::ready, in(v1::SANDBOX_PHASE_STOPPED))->ok());
  EXPECT_FALSE(settled(Goal::stopped, in(v1::SANDBOX_PHASE_DELETING))->ok());
  EXPECT_FALSE(settled(Goal::exit, in(v1::SANDBOX_PHASE_STOPPED))->ok());
}

TEST(SandboxWait, ARunThatIsFollowedByAnotherIsNoEnd) {
  auto between = in(v1::SANDBOX_PHASE_ERROR, "MainProcessFailed");
  between.mutable_status()->set_exit_code(1);
  between.mutable_status()->mutable_next_restart_time()->set_seconds(5);
  EXPECT_FALSE(settled(Goal::exit, between).has_value());
  EXPECT_FALSE(settled(Goal::ready, between).has_value());
}

}  // namespace
}  // namespace openshell::cli
