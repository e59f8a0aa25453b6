// Puts the root of a sandbox together and enters it: new mount API, nothing by path of the host once the root is entered.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "drivers/process/launch_plan.hpp"

namespace openshell::drivers::process {

/// Takes the steps of a plan below `root_directory`, in a private mount namespace of the caller, then makes it the root: the old root is
/// detached, every tmpfs that is to be read-only is sealed. `owner_uid` and `owner_gid` are the workload's ids as the caller sees them.
/// Needs CAP_SYS_ADMIN over the mount namespace. The message of an error names the mount point and the call.
absl::Status enter_root(const std::vector<MountStep>& steps, const std::string& root_directory, std::uint32_t owner_uid,
                        std::uint32_t owner_gid);

/// Makes every mount of the namespace private, so that nothing of the sandbox reaches the host and nothing new of the host the sandbox.
absl::Status make_mounts_private();

}  // namespace openshell::drivers::process
