// Waiting for a sandbox to get somewhere: what a snapshot of it means for who waits. Pure.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <string>

namespace openshell::v1 {
class Sandbox;
}

namespace openshell::cli {

/// What is waited for. `exit`: the main process has ended and no further run is due. `deleted` is seen by the end of the watch, not here.
enum class Goal { ready, stopped, exit, deleted };

/// "Ready", "Stopped", "its main process to end", "deletion": as messages show it.
std::string goal_name(Goal goal);

/// Nothing while the wait goes on; OK when it is reached; else why it can not be reached any more.
std::optional<absl::Status> settled(Goal goal, const v1::Sandbox& sandbox);

}  // namespace openshell::cli
