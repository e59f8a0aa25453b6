#include "isolation/task_memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "isolation/kernel_abi.hpp"

namespace openshell::isolation {

namespace {

constexpr std::size_t kMaxCopy = 64 * 1024;
std::atomic<bool> g_vm_calls_blocked{false};  ///< a profile answers the same to everybody, so one refusal settles it

std::uint64_t untag(std::uint64_t address) {
#if defined(__aarch64__)
  return address & ~(0xffULL << 56);
#else
  return address;
#endif
}

int through_vm_call(bool write, pid_t tid, std::uint64_t address, void* local, std::size_t size) noexcept {
  iovec here{local, size};
  iovec there{reinterpret_cast<void*>(address), size};  // NOLINT: an address of another process
  const ssize_t done = write ? ::process_vm_writev(tid, &here, 1, &there, 1, 0) : ::process_vm_readv(tid, &here, 1, &there, 1, 0);
  if (done == static_cast<ssize_t>(size)) return 0;
  return done >= 0 ? EFAULT : errno;
}

int through_mem_file(bool write, pid_t tid, std::uint64_t address, void* local, std::size_t size) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/mem", tid);
  const FileDescriptor mem{::open(path.data(), (write ? O_WRONLY : O_RDONLY) | O_CLOEXEC)};
  if (!mem) return errno == ENOENT ? ESRCH : EACCES;
  const ssize_t done =
      write ? ::pwrite(mem.get(), local, size, static_cast<off_t>(address)) : ::pread(mem.get(), local, size, static_cast<off_t>(address));
  return done == static_cast<ssize_t>(size) ? 0 : EFAULT;
}

int copy(bool write, pid_t tid, std::uint64_t address, void* local, std::size_t size) noexcept {
  if (size == 0) return 0;
  if (size > kMaxCopy || address == 0) return EFAULT;
  address = untag(address);
  if (!g_vm_calls_blocked.load(std::memory_order_relaxed)) {
    const int error = through_vm_call(write, tid, address, local, size);
    if (error != EPERM && error != ENOSYS) return error;
    // EPERM comes from a profile or from this one task being closed to us; only the first is the same for a task that /proc opens.
    const int second = through_mem_file(write, tid, address, local, size);
    if (second == 0 || second == EFAULT) g_vm_calls_blocked.store(true, std::memory_order_relaxed);
    return second;
  }
  return through_mem_file(write, tid, address, local, size);
}

}  // namespace

int read_task_memory(pid_t tid, std::uint64_t address, std::span<std::byte> into) noexcept {
  return copy(false, tid, address, into.data(), into.size());
}

int write_task_memory(pid_t tid, std::uint64_t address, std::span<const std::byte> from) noexcept {
  return copy(true, tid, address, const_cast<std::byte*>(from.data()), from.size());
}

FileDescriptor open_pidfd(pid_t pid, unsigned flags) noexcept {
  return FileDescriptor{static_cast<int>(::syscall(SYS_pidfd_open, pid, flags))};
}

namespace {

/// Before 6.9 there is no pidfd of a thread: the leader's table is read, and the inode must be the one the thread itself shows under that
/// number.
TakenDescriptor take_through_leader(pid_t tid, int number) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/status", tid);
  std::array<char, 4096> status{};
  const FileDescriptor file{::open(path.data(), O_RDONLY | O_CLOEXEC)};
  if (!file || ::read(file.get(), status.data(), status.size() - 1) <= 0) return {{}, EBADF};
  const char* line = std::strstr(status.data(), "\nTgid:");
  int tgid = 0;
  if (line == nullptr || std::sscanf(line, "\nTgid: %d", &tgid) != 1) return {{}, EBADF};
  const FileDescriptor leader = open_pidfd(tgid);
  if (!leader) return {{}, EBADF};
  FileDescriptor taken{static_cast<int>(::syscall(SYS_pidfd_getfd, leader.get(), number, 0))};
  if (!taken) return {{}, errno == EPERM ? EACCES : EBADF};
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", tid, number);
  struct stat mine {
  }, theirs{};
  if (::fstat(taken.get(), &mine) != 0 || ::stat(path.data(), &theirs) != 0 || mine.st_ino != theirs.st_ino || mine.st_dev != theirs.st_dev)
    return {{}, EBADF};
  return {std::move(taken), 0};
}

}  // namespace

TakenDescriptor take_descriptor(pid_t tid, int number) noexcept {
  static std::atomic<bool> thread_pidfds{true};
  if (number < 0) return {{}, EBADF};
  if (thread_pidfds.load(std::memory_order_relaxed)) {
    const FileDescriptor thread = open_pidfd(tid, kernel::kPidfdThread);
    if (thread) {
      FileDescriptor taken{static_cast<int>(::syscall(SYS_pidfd_getfd, thread.get(), number, 0))};
      if (!taken) return {{}, errno == EPERM ? EACCES : EBADF};
      return {std::move(taken), 0};
    }
    if (errno != EINVAL) return {{}, errno == EPERM ? EACCES : EBADF};
    thread_pidfds.store(false, std::memory_order_relaxed);
  }
  return take_through_leader(tid, number);
}

PendingSignals pending_signals(pid_t tid) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/status", tid);
  const FileDescriptor file{::open(path.data(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 4096> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return {};
  const auto field = [&text](const char* name, int base) -> std::uint64_t {
    const char* at = std::strstr(text.data(), name);
    return at == nullptr ? 0 : std::strtoull(at + std::strlen(name), nullptr, base);
  };
  const std::uint64_t wanted = ~field("\nSigBlk:", 16) & field("\nSigCgt:", 16);
  return {field("\nSigPnd:", 16) & wanted, field("\nShdPnd:", 16) & wanted, static_cast<int>(field("\nThreads:", 10))};
}

TaskMemoryEvidence try_task_memory(pid_t child, const NoncePair& nonce) noexcept {
  const auto call_address = reinterpret_cast<std::uint64_t>(&nonce.by_call), file_address = reinterpret_cast<std::uint64_t>(&nonce.by_file);
  TaskMemoryEvidence evidence;
  std::uint64_t value = 0;
  evidence.read_by_call = through_vm_call(false, child, call_address, &value, sizeof value) == 0 && value == NoncePair::kBefore;
  value = 0;
  evidence.read_by_file = through_mem_file(false, child, file_address, &value, sizeof value) == 0 && value == NoncePair::kBefore;
  value = NoncePair::kAfter;
  evidence.write_by_call = through_vm_call(true, child, call_address, &value, sizeof value) == 0;
  evidence.write_by_file = through_mem_file(true, child, file_address, &value, sizeof value) == 0;
  return evidence;
}

}  // namespace openshell::isolation
