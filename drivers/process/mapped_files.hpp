// Files of subordinate ids. Without root nobody but a process in a user namespace with the right maps may make, write or remove them; such
// a helper is started for each call and carries it out with the same code that the driver itself uses.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "drivers/process/launch_plan.hpp"

namespace openshell::drivers::process {

/// The caller's subordinate ids: the first range of at least 65,536 in each file, by user name or number.
struct SubordinateIds {
  std::uint32_t uid_first = 0, gid_first = 0;
  std::string newuidmap, newgidmap;  ///< The two set-user-id programs.
};
/// NOT_FOUND says what is missing.
absl::StatusOr<SubordinateIds> find_subordinate_ids();

/// In the driver: starts `monitor` as a helper, maps it, has the call done and waits for its end.
absl::Status call_in_namespace(const std::string& monitor, const SubordinateIds& ids, const FileCall& call, const IdMapping& mapping);

/// Writes both maps of a process with newuidmap and newgidmap.
absl::Status map_process(const std::string& newuidmap, const std::string& newgidmap, pid_t process, const std::vector<IdMapLine>& uid_map,
                         const std::vector<IdMapLine>& gid_map);

/// In the helper: the whole conversation on `control`. Returns the program's exit code.
int run_files_helper(int control);

}  // namespace openshell::drivers::process
