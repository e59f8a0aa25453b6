#include "cli/ssh/upload_plan.hpp"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "cli/ssh/ssh_program.hpp"

namespace openshell::cli {
namespace {

namespace fs = std::filesystem;

/// Variables that would make git look at another repository than the one LOCAL lies in.
constexpr std::array<std::string_view, 7> kGitVariables{"GIT_DIR",
                                                        "GIT_WORK_TREE",
                                                        "GIT_INDEX_FILE",
                                                        "GIT_PREFIX",
                                                        "GIT_COMMON_DIR",
                                                        "GIT_OBJECT_DIRECTORY",
                                                        "GIT_ALTERNATE_OBJECT_DIRECTORIES"};

struct GitAnswer {
  int code = -1;  ///< -1: git could not be run
  std::string output;
};

GitAnswer git(std::vector<std::string> words) {
  words.insert(words.begin(), "git");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view entry{*each};
    const bool removed = std::any_of(kGitVariables.begin(), kGitVariables.end(), [entry](std::string_view name) {
      return entry.starts_with(name) && entry.substr(name.size()).starts_with('=');
    });
    if (!removed) environment.push_back(*each);
  }
  environment.push_back(nullptr);
  std::array<int, 2> ends{};
  GitAnswer answer;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return answer;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, "git", &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::array<char, 65'536> buffer{};
  while (failed == 0) {
    const auto count = ::read(ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    answer.output.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  if (failed == 0) answer.code = wait_for(child);
  return answer;
}

/// The root of the work tree that `path` lies in; empty: none, or no git.
std::string work_tree_of(const fs::path& path) {
  const auto folder = fs::is_directory(path) ? path : path.parent_path();
  auto answer = git({"-C", folder.empty() ? "." : folder.string(), "rev-parse", "--show-toplevel"});
  if (answer.code != 0) return {};
  while (answer.output.ends_with('\n')) answer.output.pop_back();
  return answer.output;
}

/// Canonical but for the last component, which may be a link that is itself to be sent.
fs::path resolved(const fs::path& local) {
  std::error_code error;
  auto absolute = fs::absolute(local, error).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  if (absolute.filename() == ".." || absolute == absolute.root_path()) return fs::canonical(absolute, error);
  return fs::canonical(absolute.parent_path(), error) / absolute.filename();
}

absl::StatusOr<UploadPlan> filtered_plan(const fs::path& path, const std::string& shown, const std::string& root, bool flat) {
  const std::string hint = "\nUse --no-git-ignore to upload intentionally without filtering";
  const auto inside = path.lexically_relative(root);
  std::vector<std::string> words{"-C", root, "ls-files", "-co", "--exclude-standard", "-z"};
  if (inside != ".") words.insert(words.end(), {"--", absl::StrCat(":(literal)", inside.string())});
  const auto answer = git(words);
  if (answer.code != 0) return absl::FailedPreconditionError(absl::StrCat("Git filtering failed for ", shown, "; upload stopped.", hint));
  const bool directory = fs::is_directory(path);
  UploadPlan plan;
  plan.filtered = true;
  for (std::size_t at = 0; at < answer.output.size();) {
    const auto end = std::min(answer.output.find('\0', at), answer.output.size());
    const auto file = fs::path{root} / answer.output.substr(at, end - at);
    at = end + 1;
    struct stat info {};
    if (::lstat(file.c_str(), &info) != 0) continue;  // listed and missing on disk
    if (S_ISDIR(info.st_mode)) continue;              // a nested repository; its files are its own affair
    const auto relative = directory ? file.lexically_relative(path).string() : path.filename().string();
    plan.entries.push_back({directory && !flat ? absl::StrCat(path.filename().string(), "/", relative) : relative, file});
  }
  if (plan.entries.empty())
    return absl::FailedPreconditionError(absl::StrCat("Git filtering selected no files for ", shown, "; upload stopped.", hint));
  std::sort(plan.entries.begin(), plan.entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  plan.entries.erase(std::unique(plan.entries.begin(), plan.entries.end(), [](const auto& a, const auto& b) { return a.name == b.name; }),
                     plan.entries.end());
  return plan;
}

}  // namespace

absl::StatusOr<UploadPlan> plan_upload(const std::string& local, const std::string& destination, bool no_git_ignore) {
  struct stat info {};
  auto bare = local;  // `link/` would follow the link
  while (bare.size() > 1 && bare.ends_with('/')) bare.pop_back();
  if (local.empty() || ::lstat(bare.c_str(), &info) != 0)
    return absl::InvalidArgumentError(absl::StrCat("local path does not exist: ", local));
  const auto path = resolved(bare);
  const bool link = S_ISLNK(info.st_mode), directory = S_ISDIR(info.st_mode);
  const bool flat = directory && (fs::path{bare}.filename() == "." || path == path.root_path());
  const auto root = no_git_ignore || link ? std::string{} : work_tree_of(path);
  if (!root.empty()) {
    auto plan = filtered_plan(path, local, root, flat);
    if (plan.ok() && !destination.empty()) plan->directory = destination;
    return plan;
  }
  UploadPlan plan;
  if (!no_git_ignore && !link) {
    plan.warning = absl::StrCat("Warning: ", local,
                                " is outside a Git work tree; uploading without Git filtering (.gitignore rules are not applied).");
  }
  const auto own_name = path.filename().string();
  auto entries = entries_of(path, flat ? "" : own_name);
  if (!entries.ok()) return entries.status();
  plan.entries = *std::move(entries);
  if (!destination.empty()) plan.directory = destination;
  if (directory || destination.empty() || destination.ends_with('/')) return plan;
  const bool under_root = destination.front() == '/' && destination.find('/', 1) == std::string::npos;
  if (!under_root) plan.file_target = destination;
  return plan;
}

SplitTarget split_target(const std::string& destination) {
  const auto slash = destination.rfind('/');
  if (slash == std::string::npos) return {".", destination};
  return {slash == 0 ? "/" : destination.substr(0, slash), destination.substr(slash + 1)};
}

std::string extract_command(const std::string& directory, const std::optional<std::string>& probed, bool was_directory) {
  const auto where = shell_word(directory.starts_with('-') ? "./" + directory : directory);
  std::string check;
  if (probed) {
    const auto what = shell_word(probed->starts_with('-') ? "./" + *probed : *probed);
    check = absl::StrCat(was_directory ? "[ -d " : "[ ! -d ", what, " ] || exit ", kChangedType, "; ");
  }
  return absl::StrCat(check, "mkdir -p -- ", where, " && cat | tar xf - -C ", where);
}

}  // namespace openshell::cli
