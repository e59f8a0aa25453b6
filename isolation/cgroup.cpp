#include "isolation/cgroup.hpp"

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <fstream>
#include <sstream>

namespace openshell::isolation {

namespace {
std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file{path};
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The path of the process in the hierarchy of a v1 controller, or in the unified one for "": lines are `id:controllers:path`.
std::optional<std::string> group_path(const std::string& membership, const std::string& controller) {
  std::istringstream lines{membership};
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = absl::StrCat(",", line.substr(first + 1, second - first - 1), ",");
    if (controller.empty() ? controllers == ",," : absl::StrContains(controllers, absl::StrCat(",", controller, ",")))
      return line.substr(second + 1);
  }
  return std::nullopt;
}
}  // namespace

absl::StatusOr<std::optional<std::uint64_t>> parse_pid_limit(const std::string& text) {
  std::string word = text;
  absl::StripAsciiWhitespace(&word);
  if (absl::AsciiStrToLower(word) == "max") return std::optional<std::uint64_t>{};
  std::uint64_t limit = 0;
  if (word.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(word[0])) || !absl::SimpleAtoi(word, &limit))
    return absl::InvalidArgumentError(absl::StrCat("pids.max holds '", word.substr(0, 32), "', which is no number"));
  return std::optional{limit};
}

absl::StatusOr<std::optional<std::uint64_t>> own_pid_limit(const std::string& sysfs_root, const std::string& proc_self_cgroup) {
  const std::string membership = read_file(proc_self_cgroup).value_or("");
  std::vector<std::string> candidates;
  if (const auto path = group_path(membership, "pids")) candidates.push_back(absl::StrCat(sysfs_root, "/pids", *path, "/pids.max"));
  if (const auto path = group_path(membership, "")) candidates.push_back(absl::StrCat(sysfs_root, *path, "/pids.max"));
  // In a container the own group is usually mounted as the root.
  candidates.push_back(absl::StrCat(sysfs_root, "/pids.max"));
  candidates.push_back(absl::StrCat(sysfs_root, "/pids/pids.max"));
  for (const auto& path : candidates)
    if (const auto text = read_file(path)) return parse_pid_limit(*text);
  return absl::UnavailableError(absl::StrCat("no pids.max below ", sysfs_root));
}

}  // namespace openshell::isolation
