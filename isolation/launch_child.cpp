#include "isolation/launch_child.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "isolation/landlock.hpp"

namespace openshell::isolation {

namespace {

constexpr int kErrorPipe = 3, kRuleset = 4, kWorkingDirectory = 5;  ///< where the child keeps its last descriptors; all others are closed
constexpr int kExitLaunchFailed = 127;

[[noreturn]] void fail(int pipe, LaunchStep step, int error) noexcept {
  const LaunchFailure failure{step, error};
  if (::write(pipe, &failure, sizeof failure) < 0) ::_exit(kExitLaunchFailed);
  ::_exit(kExitLaunchFailed);
}

/// Moves the descriptors to their places. Sources are first lifted above every target, so no order of numbers can overwrite one.
int place_descriptors(const ChildPlan& plan) noexcept {
  const int sources[6] = {plan.standard_streams[0], plan.standard_streams[1], plan.standard_streams[2], plan.error_pipe, plan.ruleset,
                          plan.working_directory};
  int lifted[6];
  for (int i = 0; i < 6; ++i) {
    lifted[i] = sources[i] < 0 ? -1 : ::fcntl(sources[i], F_DUPFD_CLOEXEC, 16);
    if (sources[i] >= 0 && lifted[i] < 0) return errno;
  }
  for (int i = 0; i < 6; ++i) {
    if (lifted[i] < 0)
      ::close(i);
    else if (::dup3(lifted[i], i, i < 3 ? 0 : O_CLOEXEC) < 0)
      return errno;
  }
  return ::syscall(SYS_close_range, 6U, ~0U, 0U) == 0 ? 0 : errno;
}

void reset_signals() noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal)
    ::sigaction(signal, &action, nullptr);  // SIGKILL and SIGSTOP refuse; nothing to reset there
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

int limit(int resource, std::uint64_t value) noexcept {
  const rlimit64 both{value, value};
  return ::syscall(SYS_prlimit64, 0, resource, &both, nullptr) == 0 ? 0 : errno;
}

int set_limits(const ChildPlan& plan) noexcept {
  int error = limit(RLIMIT_CORE, 0);
  if (error == 0) error = limit(RLIMIT_LOCKS, plan.job_tag);
  if (error == 0 && plan.max_processes != 0) error = limit(RLIMIT_NPROC, plan.max_processes);
  if (error == 0 && plan.max_open_files != 0) error = limit(RLIMIT_NOFILE, plan.max_open_files);
  return error;
}

bool capabilities_empty() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective | data[0].permitted | data[0].inheritable | data[1].effective | data[1].permitted | data[1].inheritable) == 0;
}

}  // namespace

const char* to_string(LaunchStep step) noexcept {
  switch (step) {
    case LaunchStep::Session:
      return "session";
    case LaunchStep::Terminal:
      return "controlling terminal";
    case LaunchStep::StandardStreams:
      return "standard streams";
    case LaunchStep::Signals:
      return "signals";
    case LaunchStep::WorkingDirectory:
      return "working directory";
    case LaunchStep::Limits:
      return "resource limits";
    case LaunchStep::Capabilities:
      return "capability check";
    case LaunchStep::NoNewPrivileges:
      return "no_new_privs";
    case LaunchStep::Landlock:
      return "Landlock policy";
    case LaunchStep::Filters:
      return "system call filters";
    case LaunchStep::Execute:
      return "execve";
  }
  return "?";
}

void run_child(const ChildPlan& plan) noexcept {
  int pipe = plan.error_pipe;
  if (plan.terminal) {
    if (::setsid() < 0) fail(pipe, LaunchStep::Session, errno);
    if (::ioctl(plan.standard_streams[0], TIOCSCTTY, 0) != 0) fail(pipe, LaunchStep::Terminal, errno);
  } else if (::setpgid(0, 0) != 0) {
    fail(pipe, LaunchStep::Session, errno);
  }
  if (const int error = place_descriptors(plan); error != 0) fail(pipe, LaunchStep::StandardStreams, error);
  pipe = kErrorPipe;
  reset_signals();
  if (::fchdir(kWorkingDirectory) != 0) fail(pipe, LaunchStep::WorkingDirectory, errno);
  ::close(kWorkingDirectory);
  ::umask(022);
  if (const int error = set_limits(plan); error != 0) fail(pipe, LaunchStep::Limits, error);
  if (!capabilities_empty()) fail(pipe, LaunchStep::Capabilities, EPERM);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail(pipe, LaunchStep::NoNewPrivileges, errno);
  if (plan.ruleset >= 0) {
    if (const int error = restrict_self(kRuleset); error != 0) fail(pipe, LaunchStep::Landlock, error);
    ::close(kRuleset);
  }
  if (plan.probe != nullptr) ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // as execve would
  if (const int error = install_filter(*plan.self_protection); error != 0) fail(pipe, LaunchStep::Filters, error);
  if (const int error = install_filter(*plan.workload); error != 0) fail(pipe, LaunchStep::Filters, error);
  if (plan.probe != nullptr) {
    ::close(kErrorPipe);
    ::_exit(plan.probe(plan.probe_argument));
  }
  ::execve(plan.program, plan.arguments, plan.environment);
  fail(pipe, LaunchStep::Execute, errno);
}

}  // namespace openshell::isolation
