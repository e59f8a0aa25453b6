// Reaching into a task that waits in a notification: its memory, and its open sockets. Every use is bracketed by a check that the
// notification still stands, by the caller. process_vm_readv(2), pidfd_getfd(2). Requirements.
#pragma once

#include <absl/status/status.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "isolation/file_descriptor.hpp"

namespace openshell::isolation {

/// Copies exactly `into.size()` bytes (64 KiB at most) from the task. 0, or EFAULT for a short or unmapped range, EACCES for a task that
/// may not be read. By process_vm_readv; where a profile forbids that call, for good by /proc/<tid>/mem.
[[nodiscard]] int read_task_memory(pid_t tid, std::uint64_t address, std::span<std::byte> into) noexcept;
/// The other direction; only in CancellationMode::Killable.
[[nodiscard]] int write_task_memory(pid_t tid, std::uint64_t address, std::span<const std::byte> from) noexcept;

/// A duplicate of descriptor `number` of the thread `tid`, from that thread's own table; on failure `fd` is invalid and `error` is EBADF
/// (no such descriptor or task) or EACCES.
struct TakenDescriptor {
  FileDescriptor fd;
  int error = 0;
};
[[nodiscard]] TakenDescriptor take_descriptor(pid_t tid, int number) noexcept;

/// Opens a pidfd that is close-on-exec; invalid with errno set.
[[nodiscard]] FileDescriptor open_pidfd(pid_t pid, unsigned flags = 0) noexcept;

/// Caught, unblocked signals that wait for a task to return from its call; all zero when it is gone. proc_pid_status(5).
struct PendingSignals {
  std::uint64_t thread = 0, group = 0;  ///< signal n is bit n - 1
  int threads = 0;                      ///< of the group
  [[nodiscard]] bool any() const noexcept { return (thread | group) != 0; }
  /// This task will take it: nobody else can.
  [[nodiscard]] bool certain() const noexcept { return thread != 0 || threads == 1; }
};
[[nodiscard]] PendingSignals pending_signals(pid_t tid) noexcept;

/// Both directions through both ways against a dumpable child of the same uid, which has `nonce` at the same address and reports what it
/// finds there. Own memory would prove nothing.
struct NoncePair {
  static constexpr std::uint64_t kBefore = 0x6f70656e5368656cULL, kAfter = 0x6c65685365706f6eULL;
  volatile std::uint64_t by_call = kBefore, by_file = kBefore;
};
struct TaskMemoryEvidence {
  bool read_by_call = false, write_by_call = false, read_by_file = false,
       write_by_file = false;  ///< a write counts once the child has seen it
};
/// Reads both nonces of `child` and overwrites them with kAfter.
TaskMemoryEvidence try_task_memory(pid_t child, const NoncePair& nonce) noexcept;

}  // namespace openshell::isolation
