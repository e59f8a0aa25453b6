// Which program asks: path and SHA-256 of a task's executable, of its ancestors up to the sandbox, and the paths on its command lines. Read
// from /proc while the task waits in a notification; whatever can not be read makes the whole identity fail. Requirements,
// section "identity" of the egress rules.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace openshell::isolation {

constexpr std::size_t kMaxAncestors = 64;              ///< processes between the task and the sandbox; a longer chain fails
constexpr std::size_t kMaxCommandLinePaths = 32;       ///< informational, the rest is dropped
constexpr std::size_t kMaxCommandLineBytes = 16384;    ///< read of one /proc/<pid>/cmdline
constexpr std::size_t kMaxHashCacheEntries = 512;      ///< executables; the oldest entry goes
constexpr std::uint64_t kMaxHashedBytes = 2ULL << 30;  ///< a larger executable has no identity

/// One executable as the kernel shows it.
struct Executable {
  std::string path;    ///< as /proc/<pid>/exe names it, in the workload's mount namespace
  std::string sha256;  ///< 64 lower-case hex digits
};

struct BinaryIdentity {
  pid_t pid = 0;  ///< thread group id of the task
  Executable executable;
  std::vector<Executable> ancestors;       ///< nearest first, without the sandbox itself
  std::vector<std::string> command_paths;  ///< absolute paths among the arguments of the task and its ancestors; informational, forgeable
};

/// Reads identities and remembers digests by (device, inode, size, mtime, ctime). Thread-safe.
class IdentityReader {
 public:
  /// `sandbox`: where the chain of ancestors ends (getpid() of openshell-sandbox).
  explicit IdentityReader(pid_t sandbox);
  ~IdentityReader();

  /// Everything about a task, by thread id. May hash files: up to 0.5 s for a large executable the first time. Unavailable, with the
  /// reason, when anything is unreadable, deleted, or changed while it was read. The caller re-checks afterwards that the task still waits.
  absl::StatusOr<BinaryIdentity> read(pid_t tid);

  /// The same from the cache alone; nullopt when a file would have to be hashed.
  std::optional<absl::StatusOr<BinaryIdentity>> read_cached(pid_t tid);

 private:
  struct Cache;
  absl::StatusOr<Executable> read_executable(pid_t pid, bool may_hash, bool& would_hash);
  absl::StatusOr<BinaryIdentity> collect(pid_t tid, bool may_hash, bool& would_hash);
  pid_t sandbox_;
  std::unique_ptr<Cache> cache_;
};

/// Thread group and parent of a task, from /proc/<tid>/status. NotFound when it is gone.
struct TaskIds {
  pid_t tgid = 0;
  pid_t ppid = 0;
  int threads = 0;
};
absl::StatusOr<TaskIds> read_task_ids(pid_t tid);

}  // namespace openshell::isolation
