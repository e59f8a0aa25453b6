#include "isolation/process_tree.hpp"

#include <absl/strings/str_cat.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "isolation/task_memory.hpp"

namespace openshell::isolation {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kKillGrace{2000};
constexpr int kFirstPauseMs = 2;     ///< before the next pass of freeze(); doubled each time: on a busy host a task gets to its signal late
constexpr int kScanIntervalMs = 20;  ///< longest wait between two looks while processes end

/// Fields 3 to 7 of /proc/<pid>/stat; the name in field 2 may hold anything, so the last ')' ends it.
bool read_entry(pid_t pid, ProcessEntry& entry) {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const FileDescriptor file{::open(path.data(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 512> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return false;
  const char* rest = std::strrchr(text.data(), ')');
  int session = 0, terminal = 0;
  if (rest == nullptr || std::sscanf(rest + 1, " %c %d %d %d %d", &entry.state, &entry.ppid, &entry.pgid, &session, &terminal) != 5)
    return false;
  entry.terminal = terminal != 0;
  entry.pid = pid;
  return true;
}

absl::StatusOr<std::vector<ProcessEntry>> all_processes() {
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return absl::UnavailableError(absl::StrCat("/proc can not be read: ", std::strerror(errno)));
  std::vector<ProcessEntry> entries;
  while (const dirent* name = ::readdir(proc)) {
    char* end = nullptr;
    const long pid = std::strtol(name->d_name, &end, 10);
    ProcessEntry entry;
    if (pid > 0 && *end == '\0' && read_entry(static_cast<pid_t>(pid), entry)) entries.push_back(entry);
  }
  ::closedir(proc);
  return entries;
}

bool is_dead(char state) { return state == 'Z' || state == 'X' || state == 'x'; }
bool is_stopped(char state) { return state == 'T' || state == 't'; }

int send_by_pidfd(int pidfd, int signal) { return ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0 ? 0 : errno; }

JobTag job_of(pid_t pid) {
  rlimit64 limit{};
  if (::prlimit64(pid, static_cast<__rlimit_resource>(RLIMIT_LOCKS), nullptr, &limit) != 0 || limit.rlim_max == RLIM64_INFINITY) return {};
  return JobTag{limit.rlim_max};
}

/// Waits until this process ended or `timeout_ms` passed.
void wait_for_end(pid_t pid, int timeout_ms) {
  const FileDescriptor pidfd = open_pidfd(pid);
  pollfd entry{pidfd.get(), POLLIN, 0};
  ::poll(&entry, pidfd ? 1 : 0, timeout_ms);
}

}  // namespace

int ExitStatus::normalized() const noexcept {
  switch (kind) {
    case Kind::Exited:
      return value & 0xff;
    case Kind::Signaled:
      return 128 + value;
    case Kind::Unknown:
      break;
  }
  return -1;
}

struct ProcessTree::State {
  pid_t root;
  mutable std::mutex mutex;
  bool frozen = false;
  std::unordered_map<pid_t, FileDescriptor> stopped;  ///< what freeze() stopped

  template <class Select>
  absl::Status end_all(const Select& select, std::chrono::milliseconds grace);
};

ProcessTree::ProcessTree() : ProcessTree{::getpid()} {}
ProcessTree::ProcessTree(pid_t root) : state_{std::make_unique<State>()} { state_->root = root; }
ProcessTree::~ProcessTree() = default;

absl::StatusOr<std::vector<ProcessEntry>> ProcessTree::descendants() const {
  auto all = all_processes();
  if (!all.ok()) return all.status();
  std::unordered_multimap<pid_t, const ProcessEntry*> children;
  for (const auto& entry : *all) children.emplace(entry.ppid, &entry);
  std::vector<ProcessEntry> found;
  std::unordered_set<pid_t> seen{state_->root};
  std::vector<pid_t> open{state_->root};
  while (!open.empty()) {
    const auto [first, last] = children.equal_range(open.back());
    open.pop_back();
    for (auto it = first; it != last; ++it) {
      if (!seen.insert(it->second->pid).second) continue;  // a scan is no snapshot: a pid may be seen under two parents
      found.push_back(*it->second);
      open.push_back(it->second->pid);
    }
  }
  return found;
}

absl::StatusOr<std::vector<ProcessEntry>> ProcessTree::members(JobTag job) const {
  auto all = descendants();
  if (!all.ok()) return all;
  std::erase_if(*all, [job](const ProcessEntry& entry) { return job.value == 0 || job_of(entry.pid) != job; });
  return all;
}

absl::Status ProcessTree::freeze() {
  const std::lock_guard lock{state_->mutex};
  state_->frozen = true;
  for (int pass = 0; pass < kFreezePasses; ++pass) {
    auto processes = descendants();
    if (!processes.ok()) return processes.status();
    bool running = false;
    for (const auto& process : *processes) {
      if (is_dead(process.state) || is_stopped(process.state)) continue;
      FileDescriptor pidfd = open_pidfd(process.pid);
      if (!pidfd) continue;
      const bool known = state_->stopped.contains(process.pid);
      // Uninterruptible sleep with a stop pending runs no further instruction of the workload.
      if (!known || process.state != 'D') running = true;
      if (send_by_pidfd(pidfd.get(), SIGSTOP) == 0) state_->stopped.insert_or_assign(process.pid, std::move(pidfd));
    }
    if (!running) return absl::OkStatus();
    ::poll(nullptr, 0, kFirstPauseMs << pass);
  }
  return absl::DeadlineExceededError(absl::StrCat("workload processes still run after ", kFreezePasses, " freeze passes"));
}

absl::Status ProcessTree::resume() {
  const std::lock_guard lock{state_->mutex};
  int failures = 0;
  for (const auto& [pid, pidfd] : state_->stopped) {
    const int error = send_by_pidfd(pidfd.get(), SIGCONT);
    if (error != 0 && error != ESRCH) ++failures;
  }
  if (failures > 0) return absl::InternalError(absl::StrCat(failures, " frozen processes could not be resumed"));
  state_->stopped.clear();
  state_->frozen = false;
  return absl::OkStatus();
}

bool ProcessTree::frozen() const {
  const std::lock_guard lock{state_->mutex};
  return state_->frozen;
}

template <class Select>
absl::Status ProcessTree::State::end_all(const Select& select, std::chrono::milliseconds grace) {
  const auto send = [](const std::vector<ProcessEntry>& processes, std::initializer_list<int> signals) {
    for (const auto& process : processes) {
      const FileDescriptor pidfd = open_pidfd(process.pid);
      for (int signal : signals)
        if (pidfd && (signal != SIGHUP || process.terminal)) send_by_pidfd(pidfd.get(), signal);
    }
  };
  auto processes = select();
  if (!processes.ok()) return processes.status();
  send(*processes, {SIGTERM, SIGHUP, SIGCONT});  // a shell on a terminal ignores the first and ends by the second
  const auto soft = Clock::now() + grace;
  const auto hard = soft + kKillGrace;
  for (;;) {
    processes = select();
    if (!processes.ok()) return processes.status();
    if (processes->empty()) return absl::OkStatus();
    const auto now = Clock::now();
    if (now >= hard) break;
    if (now >= soft) send(*processes, {SIGKILL});
    const auto until = std::chrono::duration_cast<std::chrono::milliseconds>((now < soft ? soft : hard) - now).count();
    wait_for_end(processes->front().pid, static_cast<int>(std::clamp<long>(until, 1, kScanIntervalMs)));
  }
  return absl::DeadlineExceededError(absl::StrCat(processes->size(), " workload processes remain after forced termination"));
}

absl::Status ProcessTree::terminate(std::chrono::milliseconds grace) {
  return state_->end_all(
      [this] {
        auto all = descendants();
        if (all.ok()) std::erase_if(*all, [](const ProcessEntry& entry) { return is_dead(entry.state); });
        return all;
      },
      grace);
}

absl::Status ProcessTree::terminate(JobTag job, std::chrono::milliseconds grace) {
  return state_->end_all(
      [this, job] {
        auto all = members(job);
        if (all.ok()) std::erase_if(*all, [](const ProcessEntry& entry) { return is_dead(entry.state); });
        return all;
      },
      grace);
}

absl::Status ProcessTree::signal(JobTag job, int signal) {
  auto all = members(job);
  if (!all.ok()) return all.status();
  int sent = 0;
  for (const auto& process : *all) {
    const FileDescriptor pidfd = open_pidfd(process.pid);
    // The number may have been reused between the look and the open: what the descriptor holds is what counts.
    if (pidfd && !is_dead(process.state) && job_of(process.pid) == job && send_by_pidfd(pidfd.get(), signal) == 0) ++sent;
  }
  return sent > 0 ? absl::OkStatus() : absl::NotFoundError("no process of this launch is alive");
}

}  // namespace openshell::isolation
