// What `sandbox upload` sends and where it lands, decided before the sandbox is asked anything.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/ssh/tar.hpp"

namespace openshell::cli {

struct UploadPlan {
  std::vector<TarEntry> entries;
  std::string directory = ".";             ///< where the archive is extracted
  std::optional<std::string> file_target;  ///< DEST of a single file: a directory if it is one in the sandbox, else the name to write
  bool filtered = false;                   ///< by git
  std::string warning;                     ///< for stderr; empty: none
};

/// INVALID_ARGUMENT where LOCAL is missing or of no kind that can be sent; FAILED_PRECONDITION where git cannot say what belongs to it.
/// `destination` empty: the workspace.
absl::StatusOr<UploadPlan> plan_upload(const std::string& local, const std::string& destination, bool no_git_ignore);

/// Directory and last component of a destination that names a file.
struct SplitTarget {
  std::string directory, name;
};
SplitTarget split_target(const std::string& destination);

/// The remote command that extracts an archive on stdin into `directory`. With `must_be_directory` it refuses (73) where DEST has become
/// something else since it was looked at.
std::string extract_command(const std::string& directory, const std::optional<std::string>& probed, bool was_directory);
inline constexpr int kChangedType = 73;

}  // namespace openshell::cli
