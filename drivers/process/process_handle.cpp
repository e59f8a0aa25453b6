#include "drivers/process/process_handle.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace openshell::drivers::process {

absl::StatusOr<std::string> boot_id() {
  std::ifstream file{"/proc/sys/kernel/random/boot_id"};
  std::string id;
  if (!std::getline(file, id) || id.empty()) return absl::InternalError("reading /proc/sys/kernel/random/boot_id");
  return id;
}

absl::StatusOr<ProcessMark> mark_of(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string line;
  if (!std::getline(file, line)) return absl::NotFoundError("process " + std::to_string(pid) + " does not exist");
  // The second field is a name in parentheses that may hold anything, parentheses too; after the last one come the others from the third
  // on.
  const auto end = line.rfind(')');
  if (end == std::string::npos) return absl::InternalError("/proc/<pid>/stat has no name");
  std::istringstream words{line.substr(end + 1)};
  std::string word;
  constexpr int kStartTime = 22, kFirstAfterName = 3;
  for (int field = kFirstAfterName; field <= kStartTime; ++field) words >> word;
  ProcessMark mark{pid, 0};
  mark.start_ticks = std::strtoull(word.c_str(), nullptr, 10);
  return mark;
}

absl::StatusOr<Descriptor> open_process(const ProcessMark& mark) {
  Descriptor pidfd{static_cast<int>(syscall(SYS_pidfd_open, mark.pid, 0))};
  if (!pidfd) return absl::NotFoundError("process " + std::to_string(mark.pid) + " does not exist");
  const auto now = mark_of(mark.pid);
  // Looked at after the pidfd was opened: had the pid been reused before, the start time would differ.
  if (!now.ok() || *now != mark || has_ended(pidfd.get()))
    return absl::NotFoundError("process " + std::to_string(mark.pid) + " is not the recorded one");
  return pidfd;
}

std::vector<std::string> descriptor_links(const std::string& process) {
  std::vector<std::string> links;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + process + "/fd", error)) {
    const auto link = std::filesystem::read_symlink(entry.path(), error);
    if (!error) links.push_back(link.string());
  }
  if (error && links.empty()) links.push_back("unreadable: " + error.message());
  std::sort(links.begin(), links.end());
  return links;
}

bool has_ended(int pidfd) { return wait_ended(pidfd, std::chrono::milliseconds{0}); }

bool wait_ended(int pidfd, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{pidfd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

absl::Status send_signal(int pidfd, int signal) {
  if (syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0 || errno == ESRCH) return absl::OkStatus();
  return system_error("sending signal " + std::to_string(signal));
}

}  // namespace openshell::drivers::process
