// openshell-sandbox as a whole: posture, bootstrap, mechanisms, qualification, channel, actors; until it ends.
#pragma once

#include <string>

namespace openshell::sandbox {

struct RuntimeOptions {
  std::string bootstrap_path = "/.openshell/bootstrap";
};

/// Exit codes of the program besides those of the boundary.
inline constexpr int kExitPosture = 3;
inline constexpr int kExitBootstrap = 4;
inline constexpr int kExitListen = 5;

/// Called first in main, with no other thread. Returns the exit code; the caller leaves with _exit, since whatever still runs ends with
/// PID 1.
[[nodiscard]] int run(const RuntimeOptions& options);

/// Tries everything that the runtime needs as the current identity and prints one JSON line. 0: qualified, 3: not.
[[nodiscard]] int capability_probe();

/// Becomes uid:gid without capabilities and with no_new_privs, then capability_probe.
[[nodiscard]] int capability_probe_launch(unsigned uid, unsigned gid);

}  // namespace openshell::sandbox
