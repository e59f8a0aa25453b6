// Landlock: what a workload may do with files, natively with TCP, and with signals. Two layers: a mandatory baseline that keeps every
// workload process away from `/.openshell`, from native TCP connects and from the broker (installed once, on the launcher thread), and the
// policy layer of one launch on top. landlock(7); requirements R-32..R-34, IS-22.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

#include "isolation/file_descriptor.hpp"

namespace openshell::isolation {

/// The lowest Landlock ABI that is accepted: 3 brings TRUNCATE (Linux 6.2, or a backport).
constexpr int kMinimumLandlockAbi = 3;

/// What this kernel's Landlock can do; read once at start.
struct LandlockFeatures {
  int abi = 0;
  [[nodiscard]] bool confines_tcp_connect() const noexcept { return abi >= 4; }  ///< LANDLOCK_ACCESS_NET_CONNECT_TCP
  [[nodiscard]] bool scopes_signals() const noexcept { return abi >= 6; }        ///< LANDLOCK_SCOPE_SIGNAL and ..._ABSTRACT_UNIX_SOCKET
};

/// Asks the kernel. FailedPrecondition with a sentence that says what was found (not built in, switched off, blocked by a seccomp profile,
/// too old) and what to do.
absl::StatusOr<LandlockFeatures> probe_landlock();

/// The baseline ruleset: all file rights on every root child except `/.openshell`, opened relative to a pinned descriptor of `/` without
/// following symbolic links; TCP connect handled with no rule (ABI 4+); signal and abstract-socket scopes (ABI 6+). `root` is "/" outside
/// tests. FailedPrecondition when `/.openshell` is anything but absent or a real directory, when it changed meanwhile, or when no child
/// could be opened.
absl::StatusOr<FileDescriptor> prepare_landlock_baseline(const LandlockFeatures& features, const std::string& root = "/");

/// What happens when a path of the policy can not be protected as asked. Unknown words are refused before this type is made.
enum class LandlockCompatibility {
  BestEffort,       ///< the path is left out (it is then denied) with a notice; zero paths left of a non-empty list fails all the same
  HardRequirement,  ///< fails the launch, except for a path that the workload's own identity may not open anyway
};

/// The filesystem section of a policy as this layer needs it. Absolute paths without `..`, 256 at most in all.
struct FilesystemPolicy {
  std::vector<std::string> read_only;
  std::vector<std::string> read_write;
  std::vector<std::string>
      optional;  ///< paths that the product added by itself and an image may lack: absent ones are skipped silently in both modes
  LandlockCompatibility compatibility = LandlockCompatibility::BestEffort;
};
constexpr std::size_t kMaxFilesystemPaths = 256 + 16;  ///< a policy's 256, and what the runtime adds

/// One thing worth a log event about a prepared layer; said by the parent, never by a forked child.
struct LandlockNotice {
  enum class Kind {
    Skipped,        ///< does not exist
    Degraded,       ///< exists but could not be opened
    AlreadyDenied,  ///< the identity lacks permission, so leaving it out changes nothing
    Unrestricted,   ///< both lists are empty: only the baseline applies
  };
  Kind kind = Kind::Skipped;
  std::string path;
  std::string reason;  ///< one of the fixed words, e.g. "path does not exist"
};

/// A prepared policy layer. `ruleset` is invalid when the policy lists no path in best effort; then there is nothing to apply.
struct LandlockLayer {
  FileDescriptor ruleset;
  std::vector<LandlockNotice> notices;
  std::size_t rules = 0;
};

/// Opens every path (symbolic links followed once, the target's type decides) and builds the ruleset. InvalidArgument for a path that is
/// relative or too many of them; FailedPrecondition where the compatibility mode demands a failure.
absl::StatusOr<LandlockLayer> prepare_landlock_policy(const LandlockFeatures& features, const FilesystemPolicy& policy);

/// Applies a ruleset to the calling thread, for ever. Needs no_new_privs. Async-signal-safe. Returns 0 or an errno value.
[[nodiscard]] int restrict_self(int ruleset_fd) noexcept;

}  // namespace openshell::isolation
