#include "drivers/process/cgroup_limits.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "drivers/process/descriptor.hpp"
#include "drivers/process/process_handle.hpp"

namespace openshell::drivers::process {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPeriodMicros = 100'000;
constexpr std::chrono::seconds kLeftOverAge{3'600};         // a directory of another gateway that young may be about to be used
constexpr auto kTidyWait = std::chrono::milliseconds{400};  // a part of the time in which a gateway is to end
constexpr auto kEmptyWait = std::chrono::seconds{5};        // for the kernel to let go of killed processes

absl::Status put(const std::string& path, const std::string& text) {
  const Descriptor file{open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  if (!file) return system_error("opening " + path);
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return system_error("writing " + path);
  return absl::OkStatus();
}

std::string get(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool has_word(const std::string& text, const std::string& wanted, char separator) {
  std::istringstream words{text};
  for (std::string word; std::getline(words, word, separator);) {
    while (!word.empty() && (word.back() == '\n' || word.back() == ' ')) word.pop_back();
    if (word == wanted) return true;
  }
  return false;
}

// controller list of /proc/self/cgroup -> path of the caller in it; "" is version 2.
std::map<std::string, std::string> own_paths(std::string_view own) {
  std::map<std::string, std::string> paths;
  std::istringstream lines{std::string(own)};
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::istringstream controllers{line.substr(first + 1, second - first - 1)};
    std::string controller;
    if (second == first + 1) paths[""] = line.substr(second + 1);
    while (std::getline(controllers, controller, ',')) paths[controller] = line.substr(second + 1);
  }
  return paths;
}

std::string join(const std::string& base, const std::string& path) {
  return path.empty() || path == "/" ? base : base + (path.front() == '/' ? "" : "/") + path;
}

// Version 2 as a plain user: the highest ancestor that was delegated to us.
std::string delegated_ancestor(const std::string& mount, const std::string& own) {
  std::string best;
  for (std::string at = join(mount, own);; at = fs::path(at).parent_path().string()) {
    if (access((at + "/cgroup.procs").c_str(), W_OK) == 0 && access(at.c_str(), W_OK) == 0) best = at;
    if (at == mount || at.size() <= mount.size()) break;
  }
  return best;
}

absl::StatusOr<double> leading_number(std::string_view text, std::string_view& rest) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(value) || text.front() == '-') return absl::InvalidArgumentError("no number");
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::vector<pid_t> processes_in(const std::string& directory) {
  std::vector<pid_t> pids;
  std::istringstream words{get(directory + "/cgroup.procs")};
  for (pid_t pid; words >> pid;) pids.push_back(pid);
  return pids;
}

}  // namespace

absl::StatusOr<std::uint64_t> parse_cpu(std::string_view text) {
  std::string_view rest;
  const auto value = text.empty() ? absl::StatusOr<double>(absl::InvalidArgumentError("empty")) : leading_number(text, rest);
  if (!value.ok() || (!rest.empty() && rest != "m"))
    return absl::InvalidArgumentError("cpu limit \"" + std::string(text) + "\" is no quantity like 500m or 1.5");
  const double milli = std::floor(*value * (rest == "m" ? 1 : 1000));
  if (milli < 1 || milli > 1e9) return absl::InvalidArgumentError("cpu limit \"" + std::string(text) + "\" is out of range");
  return static_cast<std::uint64_t>(milli);
}

absl::StatusOr<std::optional<std::uint64_t>> parse_share(std::string_view text, std::uint64_t whole) {
  if (text == "none") return std::nullopt;
  if (text.empty() || text.back() != '%') {
    auto bytes = parse_memory(text);
    if (!bytes.ok()) return absl::InvalidArgumentError("\"" + std::string(text) + "\" is no quantity like 2Gi, share like 50%, or none");
    return std::optional{*bytes};
  }
  std::string_view rest;
  const auto value = leading_number(text.substr(0, text.size() - 1), rest);
  if (!value.ok() || !rest.empty() || *value <= 0 || *value > 100)
    return absl::InvalidArgumentError("\"" + std::string(text) + "\" is no share between 0% and 100%");
  if (whole == 0) return absl::FailedPreconditionError("the whole that \"" + std::string(text) + "\" is a share of is not known");
  return std::optional{std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(whole) * *value / 100))};
}

std::uint64_t host_memory() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? static_cast<std::uint64_t>(info.totalram) * info.mem_unit : 0;
}

absl::StatusOr<std::uint64_t> parse_memory(std::string_view text) {
  constexpr std::string_view kLetters = "KMGTPE";
  std::string_view rest;
  const auto value = text.empty() ? absl::StatusOr<double>(absl::InvalidArgumentError("empty")) : leading_number(text, rest);
  const absl::Status bad = absl::InvalidArgumentError("memory limit \"" + std::string(text) + "\" is no quantity like 512Mi or 1G");
  if (!value.ok()) return bad;
  double factor = 1;
  if (!rest.empty()) {
    const auto power = kLetters.find(rest.front() == 'k' ? 'K' : rest.front());
    if (power == std::string_view::npos || (rest.size() != 1 && rest.substr(1) != "i")) return bad;
    factor = std::pow(rest.size() == 1 ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = std::floor(*value * factor);
  if (bytes < 1 || bytes > 9e18) return absl::InvalidArgumentError("memory limit \"" + std::string(text) + "\" is out of range");
  return static_cast<std::uint64_t>(bytes);
}

namespace {

// What the children of a version 2 group may be limited by.
void pass_controllers_on(const std::string& directory) {
  for (const char* controller : {"+memory", "+cpu", "+pids"}) (void)put(directory + "/cgroup.subtree_control", controller);
}

}  // namespace

CgroupRoot CgroupRoot::find(const std::vector<Mount>& mounts, std::string_view own, const std::string& parent, const std::string& name) {
  CgroupRoot found;
  const auto paths = own_paths(own);
  const auto usable = [](Hierarchy& h) {
    std::error_code error;
    fs::create_directories(h.parent, error);
    return !error && access(h.parent.c_str(), W_OK) == 0;
  };
  for (const Mount& mount : mounts) {
    if (mount.type == "cgroup2") {
      const auto own_path = paths.count("") != 0 ? paths.at("") : "/";
      const std::string base = !parent.empty()  ? join(mount.mount_point, parent)
                               : geteuid() == 0 ? mount.mount_point
                                                : delegated_ancestor(mount.mount_point, own_path);
      if (base.empty()) continue;
      for (const char* controller : {"+memory", "+cpu", "+pids"}) (void)put(base + "/cgroup.subtree_control", controller);
      Hierarchy h{base + "/" + name};
      h.version2 = true;
      if (!usable(h)) continue;
      pass_controllers_on(h.parent);
      const std::string enabled = get(h.parent + "/cgroup.subtree_control");
      h.memory = has_word(enabled, "memory", ' ');
      h.cpu = has_word(enabled, "cpu", ' ');
      h.processes = has_word(enabled, "pids", ' ');
      found.hierarchies_.push_back(h);
    } else if (mount.type == "cgroup") {
      Hierarchy h;
      std::string own_path;
      for (const auto& [controller, flag] : {std::pair{"memory", &h.memory}, std::pair{"cpu", &h.cpu}, std::pair{"pids", &h.processes}}) {
        if (!has_option(mount.super_options, controller) || paths.count(controller) == 0) continue;
        *flag = true;
        own_path = paths.at(controller);
      }
      if (!h.memory && !h.cpu && !h.processes) continue;
      h.parent = join(join(mount.mount_point, parent.empty() ? own_path : parent), name);
      if (usable(h)) found.hierarchies_.push_back(h);
    }
  }
  for (const Hierarchy& h : found.hierarchies_) {
    remove_left_over(fs::path(h.parent).parent_path().string());
    (void)rmdir(h.parent.c_str());  // that it can be made is known now; it stays where sandboxes live on
    found.cpu_ |= h.cpu;
    found.memory_ |= h.memory;
    found.processes_ |= h.processes;
    if (h.memory || h.cpu || h.processes) found.version_ = h.version2 ? CgroupVersion::kV2 : CgroupVersion::kV1;
  }
  return found;
}

std::vector<std::string> CgroupRoot::directories(const std::string& sandbox_id) const {
  std::vector<std::string> all;
  for (const Hierarchy& h : hierarchies_) all.push_back(h.parent + "/" + sandbox_id);
  return all;
}

std::string CgroupRoot::visible_directory(const std::string& sandbox_id) const {
  for (const Hierarchy& h : hierarchies_) {
    if (h.processes) return h.parent + "/" + sandbox_id;
  }
  return {};
}

absl::Status CgroupRoot::make(const std::string& sandbox_id, const Limits& limits) const {
  for (const Hierarchy& h : hierarchies_) {
    const std::string directory = h.parent + "/" + sandbox_id;
    std::error_code error;
    fs::create_directories(directory, error);  // with the parent, which is there only while sandboxes are
    if (error) return absl::UnavailableError("making cgroup " + directory + ": " + error.message());
    if (h.version2) pass_controllers_on(h.parent);
    absl::Status status;
    if (h.memory && limits.memory_bytes) {
      status = put(directory + (h.version2 ? "/memory.max" : "/memory.limit_in_bytes"), std::to_string(*limits.memory_bytes));
    }
    if (status.ok() && h.cpu && limits.cpu_milli) {
      const std::string quota = std::to_string(std::max<std::uint64_t>(1000, *limits.cpu_milli * (kPeriodMicros / 1000)));
      status = h.version2 ? put(directory + "/cpu.max", quota + " " + std::to_string(kPeriodMicros))
                          : put(directory + "/cpu.cfs_period_us", std::to_string(kPeriodMicros));
      if (status.ok() && !h.version2) status = put(directory + "/cpu.cfs_quota_us", quota);
    }
    if (status.ok() && h.processes && limits.processes) status = put(directory + "/pids.max", std::to_string(*limits.processes));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void CgroupRoot::remove_left_over(const std::string& base) {
  constexpr std::string_view kPrefix = "openshell-";
  constexpr std::size_t kNameLength = kPrefix.size() + 12;  // of the hash of a state directory
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() != kNameLength || name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    struct stat info {};
    if (stat(entry.path().c_str(), &info) != 0 || std::time(nullptr) - info.st_mtime < kLeftOverAge.count()) continue;
    // Refused by the kernel where anything lives in it; whoever needs an empty one makes it again.
    (void)rmdir(entry.path().c_str());
  }
}

absl::Status CgroupRoot::remove(const std::string& sandbox_id) const {
  for (const std::string& directory : directories(sandbox_id)) {
    const auto deadline = std::chrono::steady_clock::now() + kEmptyWait;
    while (rmdir(directory.c_str()) != 0) {
      if (errno == ENOENT) break;
      if (errno != EBUSY) return system_error("removing cgroup " + directory);
      if (!put(directory + "/cgroup.kill", "1").ok()) {
        for (const pid_t pid : processes_in(directory)) kill(pid, SIGKILL);
      }
      if (std::chrono::steady_clock::now() > deadline) return absl::DeadlineExceededError("cgroup " + directory + " does not become empty");
      // The kernel tells nobody when a version 1 group has become empty; a killed process needs a moment.
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
  }
  return absl::OkStatus();
}

bool CgroupRoot::out_of_memory(const std::string& sandbox_id) const {
  for (const std::string& directory : directories(sandbox_id)) {
    for (const char* file : {"/memory.events", "/memory.oom_control"}) {
      std::istringstream words{get(directory + file)};
      std::uint64_t count = 0;
      for (std::string key; words >> key >> count;) {
        if (key == "oom_kill" && count > 0) return true;
      }
    }
  }
  return false;
}

void CgroupRoot::tidy() const {
  // A child that was removed a moment ago still counts for the kernel until its worker has seen to it. What can not wait for that is
  // removed by the next gateway that starts.
  const auto deadline = std::chrono::steady_clock::now() + kTidyWait;
  for (const Hierarchy& h : hierarchies_) {
    while (existing_in(h).empty() && rmdir(h.parent.c_str()) != 0 && errno == EBUSY && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
  }
}

std::vector<std::string> CgroupRoot::existing_in(const Hierarchy& hierarchy) {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(hierarchy.parent, error)) {
    if (entry.is_directory(error)) ids.push_back(entry.path().filename().string());
  }
  return ids;
}

std::vector<std::string> CgroupRoot::existing() const {
  std::vector<std::string> all;
  for (const Hierarchy& h : hierarchies_) {
    for (std::string& id : existing_in(h)) all.push_back(std::move(id));
  }
  return all;
}

}  // namespace openshell::drivers::process
