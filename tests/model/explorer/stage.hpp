// The actor system that all schedules of a run share: nothing runs and no time passes unless the world says so.
#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/model/explorer/chart.hpp"
#include "tests/model/explorer/choices.hpp"

namespace openshell::model {

/// An invariant that did not hold.
struct Violation {
  std::string invariant;  ///< short name: two schedules that break the same one are alike to the shrinker
  std::string what;
};

class Stage {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::nanoseconds;

  Stage();
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  [[nodiscard]] caf::actor_system& system() { return system_; }

  // ---- one schedule
  void begin(Chart* chart);
  /// Ends every actor that is still known, with what they would still do.
  void end();
  [[nodiscard]] Duration now() { return clock_now() - began_; }
  [[nodiscard]] Chart::Time chart_now() { return std::chrono::duration_cast<Chart::Time>(now()); }
  [[nodiscard]] Chart* chart() const { return chart_; }

  /// Names an actor in the chart, and ends it with the schedule.
  void keep(const caf::actor& actor, std::string name);
  [[nodiscard]] const caf::actor* named(const std::string& name) const;
  void kill_all();  ///< at once, unasked; nothing of theirs is handled afterwards

  /// Actors with something to do, other than `stalled`.
  [[nodiscard]] std::size_t runnable(const std::string& stalled = {});
  /// One message of the `index`th of them.
  void run(std::size_t index, const std::string& stalled = {});
  void run_all(std::size_t limit = 100'000);  ///< until nobody has anything to do

  /// When the next timer of an actor falls due; none: a very long time.
  [[nodiscard]] Duration next_timer();
  /// Fires every timer up to `at`.
  void advance_to(Duration at);

 private:
  struct Config : caf::actor_system_config {
    Config() { set("scheduler.policy", caf::atom("testing")); }
  };

  Duration clock_now() { return clock_->now().time_since_epoch(); }
  const std::string& name_of(caf::resumable* job);
  void draw(caf::scheduled_actor& actor);

  Config config_;
  caf::actor_system system_;
  caf::scheduler::test_coordinator* scheduler_;
  caf::detail::test_actor_clock* clock_;
  std::map<caf::actor_id, std::string> names_;
  std::map<std::string, caf::actor> actors_;
  Duration began_{0};
  Chart* chart_ = nullptr;
};

}  // namespace openshell::model
