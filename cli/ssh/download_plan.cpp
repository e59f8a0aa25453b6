#include "cli/ssh/download_plan.hpp"

#include <absl/strings/str_cat.h>

#include "cli/ssh/remote.hpp"
#include "cli/ssh/ssh_program.hpp"

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;

bool within(const std::string& path, const std::string& root) { return path == root || path.starts_with(root + "/"); }

/// `path` from `root`, without `.`, `..` and double slashes; no link is looked at.
std::string lexical(const std::string& path, const std::string& root) {
  auto text = (path.starts_with('/') ? fs::path{path} : fs::path{root} / path).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

/// A word of a test: a leading dash is no option.
std::string operand(const std::string& path) { return shell_word(path.starts_with('-') ? "./" + path : path); }

}  // namespace

std::string resolve_command(const std::string& path) { return absl::StrCat("pwd -P && realpath -e -- ", shell_word(path)); }

std::string type_command(const std::string& path) {
  const auto word = operand(path);
  return absl::StrCat("if [ -d ", word, " ]; then printf dir; elif [ -e ", word, " ]; then printf file; else printf missing; fi");
}

std::string archive_command(const std::string& path, bool directory) {
  if (directory) return absl::StrCat("tar cf - -C ", shell_word(path), " .");
  const auto slash = path.rfind('/');
  return absl::StrCat("tar cf - -C ", shell_word(slash == 0 ? "/" : path.substr(0, slash)), " -- ", shell_word(path.substr(slash + 1)));
}

absl::StatusOr<std::string> check_source(const std::string& path, const std::string& answer, int code) {
  const auto first = answer.find('\n');
  const auto root = answer.substr(0, first);
  if (first == std::string::npos || !is_canonical(root) || root == "/")
    return absl::FailedPreconditionError("the sandbox's workspace is not an absolute, canonical path below `/`");
  if (!within(lexical(path, root), root))
    return absl::PermissionDeniedError(absl::StrCat("sandbox source path '", path, "' is outside the sandbox workspace (", root, ")"));
  auto resolved = answer.substr(first + 1);
  if (resolved.ends_with('\n')) resolved.pop_back();
  if (code != 0 || resolved.empty()) return absl::NotFoundError(absl::StrCat("sandbox source path does not exist: ", path));
  if (!is_canonical(resolved) || !within(resolved, root))
    return absl::PermissionDeniedError(
        absl::StrCat("sandbox source path '", path, "' resolves to '", resolved, "', outside the sandbox workspace (", root, ")"));
  return resolved;
}

absl::StatusOr<DownloadTarget> check_destination(const std::string& path, const std::string& destination, const std::string& source,
                                                 const std::string& type) {
  DownloadTarget target;
  std::error_code error;
  const bool into = destination.ends_with('/') || fs::is_directory(destination, error);
  if (type == "dir") {
    if (fs::exists(destination, error) && !fs::is_directory(destination, error))
      return absl::FailedPreconditionError(
          absl::StrCat("cannot extract directory '", path, "' over non-directory destination '", destination, "'"));
    target.directory = true;
    target.path = destination;
    fs::create_directories(target.path, error);
    if (!fs::is_directory(target.path)) return absl::InternalError(absl::StrCat("cannot make ", destination, ": ", error.message()));
    return target;
  }
  if (type != "file") return absl::NotFoundError(absl::StrCat("sandbox source path does not exist: ", path));
  const auto name = source.substr(source.rfind('/') + 1);
  target.path = into ? fs::path{destination} / name : fs::path{destination};
  if (fs::is_directory(target.path, error))
    return absl::FailedPreconditionError(absl::StrCat("cannot overwrite directory '", target.path.string(), "' with downloaded file"));
  if (target.path.has_parent_path()) fs::create_directories(target.path.parent_path(), error);
  return target;
}

}  // namespace openshell::cli
