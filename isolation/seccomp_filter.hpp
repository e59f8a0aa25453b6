// The three seccomp programs of a sandbox. F1 turns socket creation and connects into notifications; it is installed once, on the launcher
// thread. F2 keeps the workload off the sandbox's own process; F3 denies the ways around all of it. Built with libseccomp, exported as BPF
// behind a prologue of our own, installed by raw seccomp(2), so that WAIT_KILLABLE_RECV can be set and a child installs them without
// allocating. Requirements ..R-45, IS-37.
#pragma once

#include <absl/status/statusor.h>
#include <linux/filter.h>
#include <sys/types.h>

#include <span>
#include <vector>

#include "isolation/file_descriptor.hpp"

namespace openshell::isolation {

/// Who keeps workload signals off the broker.
enum class SignalMode {
  LandlockScope,  ///< the kernel does (Landlock ABI 6+); nothing is notified
  Mediated,       ///< the broker sends them for the caller (below ABI 6)
};

/// What a signal does to a task that waits in a notification.
enum class CancellationMode {
  Killable,  ///< WAIT_KILLABLE_RECV: a received notification is interrupted by death only, so answers may write into the task's memory
  LegacyReadOnly,  ///< kernel before 5.19: no task memory is ever written
};

struct FilterProgram {
  std::vector<sock_filter> instructions;
};

struct NotifyFilterOptions {
  bool notify_getpeername = false;  ///< false where AnyIP makes the kernel's own answer right
  SignalMode signals = SignalMode::LandlockScope;
};

/// F1. Foreign architectures kill the process, x32 numbers answer ENOSYS.
absl::StatusOr<FilterProgram> build_notify_filter(const NotifyFilterOptions& options);

/// F2. Signals to `sandbox` (its thread group id as children see it) or to one of its `threads`, and affinity changes of these, are EPERM.
/// The launcher's thread must be among them: it is in the workload's own Landlock domain, where the signal scope allows everything.
absl::StatusOr<FilterProgram> build_self_protection_filter(pid_t sandbox, std::span<const pid_t> threads);

/// F3. The deny list; it also denies further filters, so it comes last.
struct WorkloadFilterOptions {
  bool block_inet = false;  ///< no INET socket at all
};
absl::StatusOr<FilterProgram> build_workload_filter(const WorkloadFilterOptions& options = {});

/// Installs F1 on the calling thread; needs no_new_privs. Tries WAIT_KILLABLE_RECV, then without it. FailedPrecondition names the errno
/// (EBUSY: an outer listener exists).
struct NotifyListener {
  FileDescriptor fd;  ///< close-on-exec; belongs to the broker
  CancellationMode cancellation = CancellationMode::Killable;
};
absl::StatusOr<NotifyListener> install_notify_filter(const FilterProgram& program, bool allow_killable = true);

/// Installs a filter without listener on the calling thread. Async-signal-safe. Returns 0 or an errno value.
[[nodiscard]] int install_filter(const FilterProgram& program) noexcept;

}  // namespace openshell::isolation
