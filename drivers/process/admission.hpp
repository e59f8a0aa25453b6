// What a specification asks of this driver, checked and turned into numbers before anything is made.
#pragma once

#include <absl/status/statusor.h>

#include "drivers/driver.hpp"
#include "drivers/process/cgroup_limits.hpp"
#include "drivers/process/process_driver.hpp"

namespace openshell::drivers::process {

struct Admitted {
  std::uint32_t uid = 0, gid = 0;  ///< As the workload sees them.
  Limits limits;
};

/// INVALID_ARGUMENT or FAILED_PRECONDITION with a message fit for the user.
absl::StatusOr<Admitted> admit(const ProcessDriverOptions& options, const CgroupRoot& cgroups, const SandboxSpec& spec);

}  // namespace openshell::drivers::process
