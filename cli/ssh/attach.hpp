// Attaching to the main process of a sandbox: what `sandbox connect` does, and `sandbox create` in the foreground.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "cli/context.hpp"

namespace openshell::cli {

/// Runs the system's `ssh` for `openshell-main` and answers its exit code; 128+n when a signal ended it. A connection that was up for 2 s
/// and is lost is made anew for up to 60 s, unless main has ended meanwhile: then its code is the answer. NOT_FOUND with a sentence where
/// this host has no `ssh`: the sandbox is kept. `terminal`: the sandbox has one (its spec's `tty`).
absl::StatusOr<int> attach_main(Context& context, const std::string& sandbox, bool terminal);

}  // namespace openshell::cli
