#include "drivers/process/identity_slots.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "drivers/process/descriptor.hpp"

namespace openshell::drivers::process {
namespace {

constexpr std::uint32_t kLowest = 65'536, kHighest = 2'147'483'647;

std::string range_text(IdRange range) { return std::to_string(range.first) + "-" + std::to_string(range.last); }

bool number(const std::string& text, std::uint32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts;
  std::istringstream words{line};
  for (std::string part; std::getline(words, part, ':');) parts.push_back(part);
  return parts;
}

// Lines `name:x:id:...` or, of subordinate files, `name:first:count`.
absl::Status check_file(IdRange range, const std::string& text, const char* file, bool subordinate) {
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    const auto parts = split(line);
    std::uint32_t first = 0, count = 1;
    if (parts.size() < 3 || !number(parts[subordinate ? 1 : 2], first) || (subordinate && !number(parts[2], count)) || count == 0) continue;
    const std::uint64_t last = std::uint64_t{first} + count - 1;
    if (first <= range.last && last >= range.first) {
      return absl::FailedPreconditionError("sandbox_uid_range " + range_text(range) + " overlaps \"" + parts[0] + "\" of " + file + " (" +
                                           std::to_string(first) + (count > 1 ? "-" + std::to_string(last) : "") + ")");
    }
  }
  return absl::OkStatus();
}

std::string read_file(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

absl::Status check_range(IdRange range, const std::string& passwd, const std::string& group, const std::string& subuid,
                         const std::string& subgid) {
  if (range.first < kLowest || range.last > kHighest || range.last < range.first || (range.last - range.first + 1) % kIdsPerSlot != 0) {
    return absl::InvalidArgumentError("sandbox_uid_range " + range_text(range) + " is no multiple of 16 ids within 65536-2147483647");
  }
  for (const auto& [text, file, subordinate] : {std::tuple{&passwd, "/etc/passwd", false}, std::tuple{&group, "/etc/group", false},
                                                std::tuple{&subuid, "/etc/subuid", true}, std::tuple{&subgid, "/etc/subgid", true}}) {
    if (auto status = check_file(range, *text, file, subordinate); !status.ok()) return status;
  }
  return absl::OkStatus();
}

IdentitySlots::IdentitySlots(std::string directory, IdRange range, std::string state_dir)
    : directory_{std::move(directory)}, range_{range}, state_dir_{std::move(state_dir)} {}

std::string IdentitySlots::path(std::uint32_t slot) const { return directory_ + "/" + std::to_string(slot); }

absl::StatusOr<std::uint32_t> IdentitySlots::take(const std::string& sandbox_id) {
  const std::string text = holder(sandbox_id);
  for (std::uint32_t slot = 0; base(slot) + (kIdsPerSlot - 1) <= range_.last; ++slot) {
    const Descriptor lock{open(path(slot).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!lock && errno == EEXIST) continue;
    if (!lock) return system_error("locking " + path(slot));
    if (write(lock.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return system_error("writing " + path(slot));
    return slot;
  }
  return absl::ResourceExhaustedError("sandbox_uid_range is exhausted");
}

absl::Status IdentitySlots::retake(std::uint32_t slot, const std::string& sandbox_id) {
  const Descriptor lock{open(path(slot).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600)};
  const std::string text = holder(sandbox_id);
  if (!lock && errno == EEXIST && read_file(path(slot)) == text) return absl::OkStatus();
  if (!lock) return system_error("locking " + path(slot));
  if (write(lock.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return system_error("writing " + path(slot));
  return absl::OkStatus();
}

void IdentitySlots::release(std::uint32_t slot, const std::string& sandbox_id) {
  if (read_file(path(slot)) == holder(sandbox_id)) unlink(path(slot).c_str());
}

void IdentitySlots::release_unknown(const std::function<bool(const std::string&)>& known) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    std::istringstream lines{read_file(entry.path().string())};
    std::string state, sandbox;
    if (std::getline(lines, state) && std::getline(lines, sandbox) && state == state_dir_ && !known(sandbox)) unlink(entry.path().c_str());
  }
}

}  // namespace openshell::drivers::process
