// Commands in a sandbox over ssh, without a terminal: what file transfer is made of.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>

#include "cli/ssh/session.hpp"

namespace openshell::cli {

inline constexpr int kTransportFailed = 255;  ///< ssh's own code: the connection, not the command
inline constexpr std::size_t kMaxCapture = 65'536;

struct RemoteResult {
  int code = 0;
  std::string output;  ///< at most kMaxCapture bytes
};

/// Runs `command` in the sandbox's shell with an empty stdin and keeps its stdout.
absl::StatusOr<RemoteResult> run_remote(const SshSession& session, const std::string& command);
/// Runs it with a pipe on its stdin, to which `write` writes; the command's exit code. An error of `write` ends it.
absl::StatusOr<int> feed_remote(const SshSession& session, const std::string& command, const std::function<absl::Status(int fd)>& write);
/// Runs it with its stdout in a pipe, which `read` reads to its end.
absl::StatusOr<int> read_remote(const SshSession& session, const std::string& command, const std::function<absl::Status(int fd)>& read);

/// `pwd -P`, which must be an absolute canonical path other than `/`.
absl::StatusOr<std::string> remote_workspace(const SshSession& session);

/// Whether `path` is absolute and has neither `.`, `..` nor empty components nor a slash at its end.
bool is_canonical(const std::string& path);

}  // namespace openshell::cli
