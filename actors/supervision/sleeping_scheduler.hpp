// The CAF configuration of all our processes: worker threads that sleep until there is work. CAF's default, work stealing, polls: each
// worker looks for work a hundred times a second while idle and 20,000 times a second after each message, which a host with fifty sandboxes
// feels.
#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>

#include <cstddef>

namespace openshell {

struct SleepingScheduler : caf::actor_system_config {
  /// `threads`: how many handlers may run at once.
  explicit SleepingScheduler(std::size_t threads) {
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", threads);
  }
};

}  // namespace openshell
