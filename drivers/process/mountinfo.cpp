#include "drivers/process/mountinfo.hpp"

#include <fstream>
#include <sstream>

namespace openshell::drivers::process {
namespace {

// Space, tab, newline and backslash are written as three octal digits.
std::string unescape(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

}  // namespace

bool has_option(std::string_view options, std::string_view wanted) {
  while (!options.empty()) {
    const auto comma = options.find(',');
    if (options.substr(0, comma) == wanted) return true;
    if (comma == std::string_view::npos) return false;
    options.remove_prefix(comma + 1);
  }
  return false;
}

absl::StatusOr<std::vector<Mount>> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    Mount mount;
    std::string parent, options, word;
    if (!(words >> mount.id >> parent >> mount.device >> mount.root >> mount.mount_point >> options))
      return absl::InvalidArgumentError("mountinfo has a short line");
    while (words >> word && word != "-") {
    }
    if (!(words >> mount.type)) return absl::InvalidArgumentError("mountinfo has a line without a type");
    words >> word >> mount.super_options;  // the source, then the options
    mount.root = unescape(mount.root);
    mount.mount_point = unescape(mount.mount_point);
    mount.read_only = has_option(options, "ro");
    mount.no_suid = has_option(options, "nosuid");
    mount.no_dev = has_option(options, "nodev");
    mount.no_exec = has_option(options, "noexec");
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

absl::StatusOr<std::vector<Mount>> read_mountinfo(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return absl::NotFoundError("reading " + path);
  return parse_mountinfo(text.str());
}

bool is_below(std::string_view path, std::string_view directory) {
  if (directory == "/") return true;
  return path.substr(0, directory.size()) == directory && (path.size() == directory.size() || path[directory.size()] == '/');
}

const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path) {
  const Mount* best = nullptr;
  for (const Mount& mount : mounts) {
    if (is_below(path, mount.mount_point) && (best == nullptr || mount.mount_point.size() >= best->mount_point.size())) best = &mount;
  }
  return best;
}

std::string root_within(const Mount& mount, std::string_view path) {
  std::string_view rest = path.substr(mount.mount_point == "/" ? 0 : mount.mount_point.size());
  if (rest == "/") rest = {};
  if (mount.root == "/") return rest.empty() ? "/" : std::string(rest);
  return mount.root + std::string(rest);
}

}  // namespace openshell::drivers::process
