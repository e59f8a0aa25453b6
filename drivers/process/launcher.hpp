// Makes the namespaces of one sandbox and the process that will be its PID 1, up to the gate before which that process waits with no
// capability left. Runs in processes of one thread only: forks, unshares and changes identity.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include "drivers/process/descriptor.hpp"
#include "drivers/process/launch_plan.hpp"

namespace openshell::drivers::process {

/// The waiting PID 1, as its monitor holds it.
struct PreparedSandbox {
  pid_t init = -1;      ///< As this PID namespace sees it.
  pid_t launcher = -1;  ///< Lives until `launcher_leash` is closed; init then becomes the child of the nearest subreaper.
  Descriptor gate;      ///< One byte opens it; closing it ends init.
  Descriptor launcher_leash;
  Descriptor output;  ///< What init writes to stdout and stderr.
};

/// Forks the launcher and waits until PID 1 stands at the gate. On an error nothing of it is left. The caller is a subreaper.
absl::StatusOr<PreparedSandbox> prepare_sandbox(const LaunchPlan& plan);

/// Forks the supervisor: own session, groups dropped, its identity, its environment and nothing else. `output` gets stdout and stderr.
absl::StatusOr<pid_t> start_supervisor(const SupervisorPlan& plan, Descriptor& output);

/// Empties all capability sets, the bounding set too where the caller may, and sets no_new_privs.
absl::Status drop_all_capabilities();

}  // namespace openshell::drivers::process
