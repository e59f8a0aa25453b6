#include "cli/ssh/forward_records.hpp"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <tuple>

#include "cli/endpoint.hpp"

namespace openshell::cli {
namespace {

constexpr std::chrono::milliseconds kLook{10}, kEnding{5'000};  // ssh closes its connections first
constexpr std::string_view kOwner = "SetEnv=OPENSHELL_FORWARD_SANDBOX_ID=";

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> command_line(pid_t pid) {
  std::ifstream file{absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  std::vector<std::string> words = absl::StrSplit(text.str(), '\0');
  if (!words.empty() && words.back().empty()) words.pop_back();
  return words;
}

/// The value behind `-o NAME=`, for every such pair.
bool has_option(const std::vector<std::string>& words, const std::string& wanted) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "-o" && words[i + 1] == wanted) return true;
  }
  return false;
}

bool has_proxy(const std::vector<std::string>& words) {
  for (const auto& word : words) {
    if (!word.starts_with("ProxyCommand=")) continue;
    const std::vector<std::string> inner = absl::StrSplit(word, ' ');
    if (inner.size() > 1 && inner[1] == "ssh-proxy") return true;
  }
  return false;
}

bool has_port(const std::vector<std::string>& words, std::uint16_t port) {
  const auto target = absl::StrCat(":127.0.0.1:", port);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "-L" && words[i + 1].ends_with(absl::StrCat(":", port, target))) return true;
  }
  return false;
}

std::optional<ForwardRecord> parse(const std::string& text) {
  const std::vector<std::string> fields = absl::StrSplit(text, '\n');
  ForwardRecord record;
  std::uint32_t port = 0;
  if (fields.size() < 7 || !absl::SimpleAtoi(fields[5], &port) || port == 0 || port > 65'535 || !absl::SimpleAtoi(fields[6], &record.pid) ||
      record.pid <= 1)
    return std::nullopt;
  record.gateway = fields[0];
  record.workspace = fields[1];
  record.sandbox = fields[2];
  record.sandbox_id = fields[3];
  record.bind = fields[4];
  record.port = static_cast<std::uint16_t>(port);
  return record;
}

/// A name as one path component: gateways may be URLs.
std::string component(const std::string& name) { return absl::StrReplaceAll(name, {{"%", "%25"}, {"/", "%2F"}}); }

}  // namespace

absl::StatusOr<ForwardSpec> parse_forward_spec(const std::string& text, std::uint16_t least) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("invalid forward spec '", text, "': expected [bind_address:]port"));
  };
  ForwardSpec spec;
  std::string number = text;
  if (const auto colon = text.rfind(':'); colon != std::string::npos) {
    spec.bind = without_brackets(text.substr(0, colon));
    number = text.substr(colon + 1);
    if (spec.bind.empty()) return bad();
  }
  std::uint32_t port = 0;
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) return bad();
  if (!absl::SimpleAtoi(number, &port) || port < least || port > 65'535)
    return absl::InvalidArgumentError(absl::StrCat("port must be between ", least, " and 65535"));
  spec.port = static_cast<std::uint16_t>(port);
  return spec;
}

bool is_forward(const std::vector<std::string>& words, const ForwardRecord& record) {
  if (record.sandbox_id.empty() || words.empty() || base_name(words.front()) != "ssh" || words.back() != "sandbox") return false;
  return std::find(words.begin(), words.end(), "-N") != words.end() && has_proxy(words) && has_port(words, record.port) &&
         has_option(words, absl::StrCat(std::string{kOwner}, record.sandbox_id));
}

absl::StatusOr<ForwardRecords> ForwardRecords::from_environment() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0')
    return ForwardRecords{std::filesystem::path{state} / "openshell" / "forwards"};
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    return absl::FailedPreconditionError("neither XDG_STATE_HOME nor HOME is set: there is no place for the records of forwards");
  return ForwardRecords{std::filesystem::path{home} / ".local" / "state" / "openshell" / "forwards"};
}

std::filesystem::path ForwardRecords::file_of(const ForwardRecord& record) const {
  return folder_ / component(record.gateway) / component(record.workspace) / absl::StrCat(component(record.sandbox), "-", record.port);
}

absl::Status ForwardRecords::save(const ForwardRecord& record) const {
  const auto path = file_of(record);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const auto text = absl::StrCat(record.gateway, "\n", record.workspace, "\n", record.sandbox, "\n", record.sandbox_id, "\n", record.bind,
                                 "\n", record.port, "\n", record.pid, "\n");
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (written) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path.string(), ": ", std::strerror(why)));
}

void ForwardRecords::erase(const ForwardRecord& record) const {
  std::error_code ignored;
  std::filesystem::remove(file_of(record), ignored);
}

std::vector<ForwardRecord> ForwardRecords::list(const std::string& gateway) const {
  std::vector<ForwardRecord> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder_ / component(gateway), error}) {
    if (!entry.is_regular_file(error)) continue;
    std::ifstream file{entry.path(), std::ios::binary};
    std::ostringstream text;
    text << file.rdbuf();
    if (auto record = parse(text.str())) out.push_back(*std::move(record));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::tie(a.workspace, a.sandbox, a.port) < std::tie(b.workspace, b.sandbox, b.port);
  });
  return out;
}

bool ForwardRecords::alive(const ForwardRecord& record) { return is_forward(command_line(record.pid), record); }

bool ForwardRecords::stop(const ForwardRecord& record) const {
  const bool ours = alive(record);
  if (ours) {
    ::kill(record.pid, SIGTERM);
    const auto until = std::chrono::steady_clock::now() + kEnding;
    while (alive(record) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kLook);
  }
  erase(record);
  return ours;
}

std::vector<std::uint16_t> ForwardRecords::stop_all(const std::string& gateway, const std::string& workspace,
                                                    const std::string& sandbox) const {
  std::vector<std::uint16_t> ports;
  for (const auto& record : list(gateway)) {
    if (record.workspace != workspace || record.sandbox != sandbox) continue;
    if (stop(record)) ports.push_back(record.port);
  }
  return ports;
}

}  // namespace openshell::cli
