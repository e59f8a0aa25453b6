#include "cli/ssh/config_file.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "cli/ssh/ssh_program.hpp"

namespace openshell::cli {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string text_of(const Lines& lines) {
  std::string text;
  for (const auto& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

std::string keyword(const std::string& line) {
  const std::string trimmed{absl::StripAsciiWhitespace(line)};
  return absl::AsciiStrToLower(trimmed.substr(0, trimmed.find_first_of(" \t=")));
}

bool begins_block(const std::string& line) {
  const auto word = keyword(line);
  return word == "host" || word == "match";
}

bool is_block_of(const std::string& line, std::string_view alias) {
  const std::string trimmed{absl::StripAsciiWhitespace(line)};
  return absl::AsciiStrToLower(trimmed) == absl::AsciiStrToLower(absl::StrCat("host ", std::string{alias}));
}

absl::StatusOr<std::string> read_or_empty(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string{};
  std::ifstream file{path, std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  if (!file && !text.str().empty()) return absl::InternalError(absl::StrCat("cannot read ", path.string()));
  return text.str();
}

absl::Status replace(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::filesystem::permissions(path.parent_path(), std::filesystem::perms::owner_all, error);
  const auto real = std::filesystem::is_symlink(path, error) ? std::filesystem::weakly_canonical(path, error) : path;  // dotfile managers
  const auto beside = std::filesystem::path{real.string() + ".openshell-new"};
  const auto before = ::umask(0077);
  {
    std::ofstream file{beside, std::ios::binary | std::ios::trunc};
    file << text;
    file.flush();
    ::umask(before);
    if (!file) return absl::InternalError(absl::StrCat("cannot write ", beside.string()));
  }
  std::filesystem::rename(beside, real, error);
  if (error) return absl::InternalError(absl::StrCat("cannot write ", real.string(), ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace

std::string host_alias(std::string_view sandbox, std::string_view workspace) {
  return absl::StrCat("openshell-", std::string{sandbox}, ".", std::string{workspace});
}

std::string host_block(std::string_view self, std::string_view gateway, std::string_view sandbox, std::string_view workspace) {
  return absl::StrCat(
      "Host ", host_alias(sandbox, workspace),
      "\n    User sandbox\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    GlobalKnownHostsFile /dev/null\n"
      "    LogLevel ERROR\n    ServerAliveInterval 15\n    ServerAliveCountMax 3\n    ProxyCommand ",
      shell_word(self), " ssh-proxy --gateway-name ", shell_word(gateway), " --name ", shell_word(sandbox), " --workspace ",
      shell_word(workspace), "\n");
}

std::string with_include(std::string_view config, std::string_view included) {
  const auto include = absl::StrCat("Include \"", std::string{included}, "\"");
  const auto before = lines_of(config);
  const auto first_block = std::find_if(before.begin(), before.end(), begins_block);
  const auto same = [&include](const std::string& line) { return absl::StripAsciiWhitespace(line) == include; };
  if (std::count_if(before.begin(), before.end(), same) == 1 && std::count_if(before.begin(), first_block, same) == 1)
    return std::string{config};
  Lines lines;
  for (auto& line : lines_of(config)) {
    if (absl::StripAsciiWhitespace(line) != include) lines.push_back(std::move(line));
  }
  auto at = lines.begin();
  while (at != lines.end() && !begins_block(*at)) ++at;
  Lines added;
  if (at != lines.begin() && !std::prev(at)->empty()) added.emplace_back();
  added.push_back(include);
  if (at != lines.end() && !at->empty()) added.emplace_back();
  lines.insert(at, added.begin(), added.end());
  return text_of(lines);
}

std::string with_block(std::string_view config, std::string_view alias, std::string_view block) {
  auto lines = lines_of(config);
  auto begin = lines.begin();
  while (begin != lines.end() && !is_block_of(*begin, alias)) ++begin;
  auto end = begin;
  if (end != lines.end()) ++end;
  while (end != lines.end() && !begins_block(*end)) ++end;
  while (end != begin && end != lines.begin() && std::prev(end) != begin && std::prev(end)->empty()) --end;  // blank lines stay
  auto ours = lines_of(block);
  if (begin == lines.end() && !lines.empty() && !lines.back().empty()) ours.insert(ours.begin(), std::string{});
  const auto at = lines.erase(begin, end);
  lines.insert(at, ours.begin(), ours.end());
  return text_of(lines);
}

absl::Status install_block(const std::filesystem::path& home, const std::filesystem::path& folder, std::string_view alias,
                           std::string_view block) {
  const auto ours = folder / "ssh_config", theirs = home / ".ssh" / "config";
  auto managed = read_or_empty(ours);
  if (!managed.ok()) return managed.status();
  auto config = read_or_empty(theirs);
  if (!config.ok()) return config.status();
  if (auto status = replace(ours, with_block(*managed, alias, block)); !status.ok()) return status;
  return replace(theirs, with_include(*config, ours.string()));
}

}  // namespace openshell::cli
