// The reaping half of process_tree.hpp. SIGCHLD wakes the thread; waitid(WNOWAIT) looks before anything is taken, so that an exit is
// matched to its owner first.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "isolation/process_tree.hpp"

namespace openshell::isolation {

namespace {

constexpr int kRetryTickMs = 5000;
std::atomic<int> g_wake_fd{-1};

void on_sigchld(int) {
  const int saved = errno;
  const std::uint64_t one = 1;
  const int fd = g_wake_fd.load(std::memory_order_relaxed);
  if (fd >= 0 && ::write(fd, &one, sizeof one) < 0) {
    // The counter is full: the thread is awake already.
  }
  errno = saved;
}

ExitStatus status_of(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {ExitStatus::Kind::Exited, info.si_status};
  if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) return {ExitStatus::Kind::Signaled, info.si_status};
  return {};
}

}  // namespace

struct ChildReaper::State {
  FileDescriptor wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;  ///< held over a fork, so that no child is reaped before it is known
  std::unordered_map<pid_t, OnExit> watched;
  std::atomic<pid_t> newborn{0};  ///< of vfork_watched, not yet known: 0 or its pid
  std::mutex queue_mutex;
  std::deque<std::function<void()>> queue;
  std::atomic<std::uint64_t> orphans{0};
  std::atomic<bool> stop{false};
  struct sigaction previous {};
  std::thread thread;

  void awake() const {
    const std::uint64_t one = 1;
    if (::write(wake.get(), &one, sizeof one) < 0) {
      // The counter is full: it wakes all the same.
    }
  }

  void run() {
    while (!stop.load()) {
      pollfd entry{wake.get(), POLLIN, 0};
      ::poll(&entry, 1, kRetryTickMs);
      std::uint64_t count = 0;
      while (::read(wake.get(), &count, sizeof count) > 0) {
      }
      run_queue();
      while (reap_one()) run_queue();
    }
    run_queue();
  }

  void run_queue() {
    std::deque<std::function<void()>> work;
    {
      const std::lock_guard lock{queue_mutex};
      work.swap(queue);
    }
    for (auto& item : work) item();
  }

  /// Takes one finished child. False when there is none.
  bool reap_one() {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
    const pid_t pid = info.si_pid;
    OnExit owner;
    bool known = false;
    {
      const std::lock_guard lock{mutex};
      if (auto it = watched.find(pid); it != watched.end()) {
        owner = std::move(it->second);
        watched.erase(it);
        known = true;
      } else if (pid == newborn.load()) {
        return false;  // who watches it is about to say so
      }
      info = {};
      if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0) info = {};
    }
    if (!known) orphans.fetch_add(1);
    if (owner) owner(pid, status_of(info));
    return true;
  }
};

ChildReaper::ChildReaper() : state_{std::make_unique<State>()} {
  g_wake_fd.store(state_->wake.get());
  struct sigaction action {};
  action.sa_handler = on_sigchld;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  ::sigaction(SIGCHLD, &action, &state_->previous);
  state_->thread = std::thread{[state = state_.get()] { state->run(); }};
}

ChildReaper::~ChildReaper() {
  state_->stop.store(true);
  state_->awake();
  state_->thread.join();
  ::sigaction(SIGCHLD, &state_->previous, nullptr);
  g_wake_fd.store(-1);
}

pid_t ChildReaper::fork_watched(const std::function<pid_t()>& fork, OnExit on_exit) {
  const std::lock_guard lock{state_->mutex};
  const pid_t pid = fork();
  if (pid > 0) state_->watched.emplace(pid, std::move(on_exit));
  return pid;
}

pid_t ChildReaper::vfork_watched(const std::function<pid_t(std::atomic<pid_t>&)>& vfork, OnExit on_exit) {
  const pid_t pid = vfork(state_->newborn);
  {
    const std::lock_guard lock{state_->mutex};
    if (pid > 0) state_->watched.emplace(pid, std::move(on_exit));
    state_->newborn.store(0);
  }
  state_->awake();  // it may have ended already
  return pid;
}

void ChildReaper::post(std::function<void()> work) {
  {
    const std::lock_guard lock{state_->queue_mutex};
    state_->queue.push_back(std::move(work));
  }
  state_->awake();
}

std::uint64_t ChildReaper::orphans_reaped() const { return state_->orphans.load(); }

}  // namespace openshell::isolation
