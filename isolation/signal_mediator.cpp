#include "isolation/signal_mediator.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "isolation/kernel_abi.hpp"
#include "isolation/procfs_identity.hpp"
#include "isolation/task_memory.hpp"

namespace openshell::isolation {

namespace {

constexpr int kHighestSignal = 64;

int send_by_pidfd(const FileDescriptor& pidfd, int signal, const siginfo_t* info) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, info, 0) == 0 ? 0 : errno;
}

/// The thread group of a process or thread number; 0 when it is gone.
pid_t group_of(pid_t number) {
  const auto ids = read_task_ids(number);
  return ids.ok() ? ids->tgid : 0;
}

/// What a caller may say about itself: no kernel code, no SI_TKILL, no other sender than itself. 0 or an errno value.
int copy_info(const seccomp_notif& notification, std::uint64_t address, int signal, pid_t caller, siginfo_t& info) {
  if (read_task_memory(static_cast<pid_t>(notification.pid), address, std::as_writable_bytes(std::span{&info, 1})) != 0) return EFAULT;
  if (info.si_code >= 0 || info.si_code == SI_TKILL) return EPERM;
  info.si_signo = signal;
  info.si_pid = caller;
  info.si_uid = ::getuid();  // one identity in the whole sandbox
  return 0;
}

}  // namespace

bool SignalMediator::handles(int syscall_number) noexcept {
  return syscall_number == SYS_kill || syscall_number == SYS_tkill || syscall_number == SYS_tgkill ||
         syscall_number == SYS_rt_sigqueueinfo || syscall_number == SYS_rt_tgsigqueueinfo;
}

bool SignalMediator::is_descendant(pid_t tgid) const {
  for (std::size_t depth = 0; tgid > 0 && depth <= kMaxAncestors * 4; ++depth) {
    const auto ids = read_task_ids(tgid);
    if (!ids.ok()) return false;
    if (ids->ppid == sandbox_) return true;
    tgid = ids->ppid;
  }
  return false;
}

int SignalMediator::to_process(pid_t number, int signal, const siginfo_t* info) const {
  const pid_t tgid = group_of(number);
  if (tgid == 0) return ESRCH;
  if (tgid == sandbox_) return EPERM;
  const FileDescriptor pidfd = open_pidfd(tgid);
  // What the descriptor holds is what is signalled: the number must still mean it, and it must be ours.
  if (!pidfd || group_of(number) != tgid || !is_descendant(tgid)) return ESRCH;
  return signal == 0 ? 0 : send_by_pidfd(pidfd, signal, info);
}

int SignalMediator::to_thread(pid_t tgid, pid_t tid, int signal, const siginfo_t* info) const {
  if (tgid == sandbox_) return EPERM;
  const FileDescriptor thread = open_pidfd(tid, kernel::kPidfdThread);
  if (thread) {
    if (group_of(tid) != tgid) return ESRCH;
    return signal == 0 ? 0 : send_by_pidfd(thread, signal, info);
  }
  // Before 6.9: while the leader is held its number can not be reused, and the kernel checks that tid belongs to it.
  const FileDescriptor leader = open_pidfd(tgid);
  if (!leader || group_of(tid) != tgid) return ESRCH;
  const long result =
      info == nullptr ? ::syscall(SYS_tgkill, tgid, tid, signal) : ::syscall(SYS_rt_tgsigqueueinfo, tgid, tid, signal, info);
  return result == 0 ? 0 : errno;
}

/// kill(0), kill(-pgid) and kill(-1): members among the descendants, each by pidfd.
int SignalMediator::to_many(const Caller& caller, pid_t pid, int signal) const {
  const auto all = tree_.descendants();
  if (!all.ok()) return EPERM;
  const pid_t group = pid == 0 ? caller.pgid : -pid;
  int sent = 0, refused = 0;
  for (const auto& process : *all) {
    if (pid == -1 ? process.pid == caller.tgid : process.pgid != group) continue;
    const FileDescriptor pidfd = open_pidfd(process.pid);
    if (!pidfd) continue;
    const int error = signal == 0 ? 0 : send_by_pidfd(pidfd, signal, nullptr);
    if (error == 0)
      ++sent;
    else if (error != ESRCH)
      ++refused;
  }
  return sent > 0 ? 0 : refused > 0 ? EPERM : ESRCH;
}

int SignalMediator::send(int number, const Caller& caller, const seccomp_notif& notification) {
  const auto argument = [&](int index) { return static_cast<std::int32_t>(notification.data.args[index]); };
  const bool with_group = number == SYS_tgkill || number == SYS_rt_tgsigqueueinfo;
  const int signal = argument(with_group ? 2 : 1);
  if (signal < 0 || signal > kHighestSignal) return EINVAL;
  if (signal == SIGCONT && frozen_.load()) return EPERM;
  const bool with_info = number == SYS_rt_sigqueueinfo || number == SYS_rt_tgsigqueueinfo;
  siginfo_t info{};
  if (with_info)
    if (const int error = copy_info(notification, notification.data.args[with_group ? 3 : 2], signal, caller.tgid, info); error != 0)
      return error;
  const siginfo_t* extra = with_info ? &info : nullptr;

  if (with_group) {
    const pid_t tgid = argument(0), tid = argument(1);
    if (tgid <= 0 || tid <= 0) return EINVAL;
    if (tgid == caller.tgid) return to_thread(tgid, tid, signal, extra);
    return group_of(tid) == tgid ? to_process(tgid, signal, extra) : ESRCH;
  }
  const pid_t pid = argument(0);
  if (number == SYS_kill) return pid > 0 ? to_process(pid, signal, nullptr) : to_many(caller, pid, signal);
  if (pid <= 0) return EINVAL;
  if (number == SYS_tkill && group_of(pid) == caller.tgid) return to_thread(caller.tgid, pid, signal, nullptr);
  return to_process(pid, signal, extra);
}

void SignalMediator::handle(const seccomp_notif& notification) {
  const auto tid = static_cast<pid_t>(notification.pid);
  Caller caller;
  caller.tgid = group_of(tid);
  if (caller.tgid == 0 || !channel_.valid(notification.id)) return;
  const int number = notification.data.nr;
  if (number == SYS_tgkill && static_cast<std::int32_t>(notification.data.args[0]) == caller.tgid) {
    const int signal = static_cast<std::int32_t>(notification.data.args[2]);
    if (signal != SIGCONT || !frozen_.load()) {
      continued_.fetch_add(1);
      channel_.let_through(notification.id);
      return;
    }
  }
  if (number == SYS_kill && static_cast<std::int32_t>(notification.data.args[0]) == 0) caller.pgid = ::getpgid(caller.tgid);
  const int error = send(number, caller, notification);
  channel_.answer(notification.id, error);
}

}  // namespace openshell::isolation
