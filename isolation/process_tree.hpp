// Every process of the workload, however it was forked: found through /proc, held by pidfd, stopped, resumed, ended. And the one place
// where children are reaped. Requirements, FB-38.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "isolation/file_descriptor.hpp"

namespace openshell::isolation {

/// Marks all processes that come from one launch, children that left its group and session included. It travels in the limit RLIMIT_LOCKS,
/// which Linux stopped enforcing in 2.4, which every fork and exec inherits, and which F3 keeps the workload from changing. 0: no launch.
struct JobTag {
  std::uint64_t value = 0;
  friend bool operator==(JobTag, JobTag) = default;
};

/// How a process ended.
struct ExitStatus {
  enum class Kind { Exited, Signaled, Unknown } kind = Kind::Unknown;
  int value = 0;  ///< exit code 0..255 or signal number
  /// 0..255, 128 + signal, or -1.
  [[nodiscard]] int normalized() const noexcept;
};

struct ProcessEntry {
  pid_t pid = 0;
  pid_t ppid = 0;
  pid_t pgid = 0;
  char state = '?';       ///< as in /proc/<pid>/stat: R S D T t Z X
  bool terminal = false;  ///< it has a controlling terminal
};

/// The descendants of one process, by default of the caller: the sandbox is PID 1 or a child subreaper, so nothing escapes by double
/// forking. All functions may be called from any thread that is not the launcher; freeze and resume exclude each other.
class ProcessTree {
 public:
  static constexpr int kFreezePasses = 8;

  ProcessTree();
  explicit ProcessTree(pid_t root);
  ~ProcessTree();

  /// Zombies included; no order.
  [[nodiscard]] absl::StatusOr<std::vector<ProcessEntry>> descendants() const;
  /// Those of one launch.
  [[nodiscard]] absl::StatusOr<std::vector<ProcessEntry>> members(JobTag job) const;

  /// Stops every descendant, in passes, until one pass finds none running. Answer every notification first (Broker::freeze): a task in one
  /// does not stop. DeadlineExceeded when some still run after kFreezePasses.
  absl::Status freeze();
  /// Continues what freeze() stopped, and nothing that the workload had stopped itself.
  absl::Status resume();
  [[nodiscard]] bool frozen() const;

  /// SIGTERM (then SIGHUP where there is a terminal, and SIGCONT) to all, `grace` to go, then SIGKILL in passes until none is left but
  /// zombies. DeadlineExceeded when some stay 2 s beyond.
  absl::Status terminate(std::chrono::milliseconds grace);
  /// The same for one launch.
  absl::Status terminate(JobTag job, std::chrono::milliseconds grace);
  /// Sends `signal` by pidfd to every live member of the job; NotFound when there is none.
  absl::Status signal(JobTag job, int signal);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reaps every child and orphan of this process on a thread of its own, and tells the owner of each watched one. Exactly one may exist.
/// Nobody else calls wait().
class ChildReaper {
 public:
  using OnExit = std::function<void(pid_t, ExitStatus)>;  ///< called on the reaper thread; must not block

  ChildReaper();
  ~ChildReaper();
  ChildReaper(const ChildReaper&) = delete;
  ChildReaper& operator=(const ChildReaper&) = delete;

  /// Runs `fork` while no child is reaped, and watches the pid it returns (> 0). So an exit is never missed, however fast.
  pid_t fork_watched(const std::function<pid_t()>& fork, OnExit on_exit);
  /// The same for a child that shares the memory of this process until it executes: `vfork` comes back only then, and others are reaped
  /// meanwhile. The child tells its own pid in the place that `vfork` is given, first of all.
  pid_t vfork_watched(const std::function<pid_t(std::atomic<pid_t>&)>& vfork, OnExit on_exit);
  /// Runs `work` on the reaper thread, in order with exits; for callbacks that must not run on the launcher thread.
  void post(std::function<void()> work);
  /// Orphans reaped so far, for introspection.
  [[nodiscard]] std::uint64_t orphans_reaped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace openshell::isolation
