// Which way of launching works on this host, found out by doing it.
#pragma once

#include <absl/status/status.h>

#include "drivers/process/launch_attempt.hpp"

namespace openshell::drivers::process {

/// Landlock ABI 3 or newer, checked before everything else. FAILED_PRECONDITION says what was found and how to get a newer kernel.
absl::Status check_landlock();

/// Puts a complete root, network and identity together for a sandbox that does nothing, up to the gate, and takes it down again. Uses
/// `context.mode`.
absl::Status try_mode(const DriverContext& context, const Parties& parties);

/// Settings of this host that are known to stand in the way, as one sentence; empty: none found.
std::string blocking_settings();

}  // namespace openshell::drivers::process
