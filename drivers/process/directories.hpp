// Directories of a sandbox: made and removed below a pinned descriptor, never through a symlink, so that a workload that owns some of them
// can not lead the driver elsewhere.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "drivers/process/descriptor.hpp"

namespace openshell::drivers::process {

struct Owner {
  std::uint32_t uid = 0, gid = 0;
};

/// Opens a directory by absolute path, making missing components with mode `mode`; symlinks in it are followed (an operator's choice).
absl::StatusOr<Descriptor> open_base(const std::string& path, std::uint32_t mode);

/// Makes `name` below `parent`, or takes what is there if it is a directory of that owner. Mode and owner are set before anything is put
/// in. FAILED_PRECONDITION: a symlink, a file, or another owner.
absl::StatusOr<Descriptor> make_directory(int parent, const std::string& name, std::uint32_t mode, Owner owner);

/// A new file with its owner and mode from the start; replaces one that is there.
absl::Status write_file(int directory, const std::string& name, std::string_view content, std::uint32_t mode, Owner owner);

/// Reads a whole file below `directory`. NOT_FOUND where there is none; at most `max_bytes`.
absl::StatusOr<std::string> read_file(int directory, const std::string& name, std::size_t max_bytes);

/// Removes `name` below `parent` with everything in it; symlinks are removed, not followed; other file systems are not entered. true: there
/// was something.
absl::StatusOr<bool> remove_tree(int parent, const std::string& name);

/// FAILED_PRECONDITION naming the first component of an absolute path that others may not pass through.
absl::Status check_passable(const std::string& path);

}  // namespace openshell::drivers::process
