// Signals below Landlock ABI 6, where no scope keeps the workload's off the sandbox: every kill-like call is notified, its target resolved
// to a thread group and held by pidfd, and the signal sent for the caller. The caller's own numbers are never continued, with one exception
// that can not change between look and act: tgkill into the caller's own group. Receivers see the sandbox as sender of a plain kill; that
// is the price of this mode. Requirements SIG-11..SIG-18, R-84, R-85.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <optional>

#include "isolation/notify_channel.hpp"
#include "isolation/process_tree.hpp"

namespace openshell::isolation {

/// Thread-safe. Answers on the calling thread; nothing in it blocks.
class SignalMediator {
 public:
  /// `sandbox`: the thread group that must not be reached, whose descendants may.
  SignalMediator(pid_t sandbox, const NotifyChannel& channel) : sandbox_{sandbox}, channel_{channel}, tree_{sandbox} {}

  static bool handles(int syscall_number) noexcept;
  void handle(const seccomp_notif& notification);
  /// While frozen a workload may not continue anybody: SIGCONT is EPERM.
  void set_frozen(bool frozen) { frozen_ = frozen; }
  [[nodiscard]] std::uint64_t continued() const { return continued_.load(); }

 private:
  struct Caller {
    pid_t tgid = 0, pgid = 0;
  };
  int send(int number, const Caller& caller, const seccomp_notif& notification);
  int to_process(pid_t number, int signal, const siginfo_t* info) const;
  int to_thread(pid_t tgid, pid_t tid, int signal, const siginfo_t* info) const;
  int to_many(const Caller& caller, pid_t pid, int signal) const;
  [[nodiscard]] bool is_descendant(pid_t tgid) const;

  const pid_t sandbox_;
  const NotifyChannel& channel_;
  const ProcessTree tree_;
  std::atomic<bool> frozen_{false};
  std::atomic<std::uint64_t> continued_{0};
};

}  // namespace openshell::isolation
