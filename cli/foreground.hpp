// `sandbox create -- COMMAND` in the foreground: the command's output and exit code are the client's own.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "cli/context.hpp"

namespace openshell::cli {

struct Foreground {
  std::string sandbox;
  bool terminal = false;   ///< main has one
  bool ephemeral = false;  ///< delete the sandbox when its output is delivered, whatever happened
};

/// Attaches to the main process of a sandbox that is ready, or whose main process has ended already and waits for us (then the gateway is
/// asked for up to 5 s, since it learns of both in its own order). Answers the command's exit code.
///
/// Ephemeral: SIGINT, SIGQUIT and SIGTERM do not end the client before the sandbox is deleted; an error of the session comes before one of
/// the deletion.
absl::StatusOr<int> run_in_foreground(Context& context, const Foreground& what);

/// Deletes an ephemeral sandbox that did not come up; the error that made it so is the caller's.
void delete_quietly(Context& context, const std::string& sandbox);

}  // namespace openshell::cli
