// The checks of `sandbox download`: what may leave the workspace, and where it lands. The answers come from a hostile sandbox; what they
// let through only decides which path of the sandbox is read, never which path of this host is written.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

namespace openshell::cli {

std::string resolve_command(const std::string& path);                  ///< workspace and resolved path, one a line
std::string type_command(const std::string& path);                     ///< prints `dir`, `file` or `missing`
std::string archive_command(const std::string& path, bool directory);  ///< a tar of it on stdout

/// The resolved path, from the answer to `resolve_command`. PERMISSION_DENIED outside the workspace, NOT_FOUND for a missing one.
absl::StatusOr<std::string> check_source(const std::string& path, const std::string& answer, int code);

struct DownloadTarget {
  bool directory = false;      ///< the contents of a directory go into `path`, which then exists
  std::filesystem::path path;  ///< else the file to write
};
absl::StatusOr<DownloadTarget> check_destination(const std::string& path, const std::string& destination, const std::string& source,
                                                 const std::string& type);

}  // namespace openshell::cli
