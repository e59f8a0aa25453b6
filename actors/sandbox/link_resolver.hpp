// Where symbolic links of programs lead, as the workload sees its root (BIN rows). Plain system calls, a few microseconds a path.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "isolation/boundary/control.hpp"

namespace openshell::sandbox {

/// The real path of `path`, or `path` itself where no part of it is a link. FAILED_PRECONDITION: a directory on the way can be written by
/// this process's identity, which is the workload's, so that the workload could make it lead to anything; NOT_FOUND: it leads nowhere;
/// INVALID_ARGUMENT: no absolute path, or one that does not end at a regular file.
[[nodiscard]] absl::StatusOr<std::string> real_program(const std::string& path);

[[nodiscard]] boundary::LinksResolved resolve_links(const boundary::ResolveLinks& request);

}  // namespace openshell::sandbox
