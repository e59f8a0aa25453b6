// Actors in virtual time: nothing runs and no time passes unless the test says so.
#pragma once

#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <chrono>

namespace openshell::test {

struct VirtualTimeConfig : caf::actor_system_config {
  VirtualTimeConfig() { set("scheduler.policy", caf::atom("testing")); }
};

/// Fixture with an actor system whose scheduler and clock are the test's. Subclass, spawn into `sys`, then `run` and `advance`.
class VirtualTime : public ::testing::Test {
 public:
  ~VirtualTime() override {
    // Whatever still runs is told to end, so that the system's destructor does not wait for ever.
    sys.await_actors_before_shutdown(false);
  }

 protected:
  static constexpr std::size_t kMaxSteps = 100'000;  // an endless self-send fails instead of hanging

  caf::scheduler::test_coordinator& sched() { return dynamic_cast<caf::scheduler::test_coordinator&>(sys.scheduler()); }

  void run() { ASSERT_LT(sched().run(kMaxSteps), kMaxSteps) << "the actors never come to rest"; }

  /// Steps through every timer that falls due on the way, in order.
  void advance(std::chrono::nanoseconds by) {
    sched().advance_time(by);
    run();
  }

  VirtualTimeConfig cfg;
  caf::actor_system sys{cfg};
};

}  // namespace openshell::test
