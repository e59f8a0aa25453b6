// The system's `ssh`, run for a sandbox: found, given its words, waited for.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ssh/session.hpp"

namespace openshell::cli {

/// The environment variable in which `ssh` hands the session's token on to `openshell ssh-proxy`: of this user only, in no process list.
inline constexpr const char* kTokenVariable = "OPENSHELL_SSH_TOKEN";

/// Path of `ssh`. NOT_FOUND names the program, the package and what works without it.
absl::StatusOr<std::string> find_ssh_program();

/// Unchanged if it holds nothing but `[A-Za-z0-9./_-]`, else between single quotes of a POSIX shell.
std::string shell_word(std::string_view word);

/// True for OpenSSH 8.5 or newer, which asks a command of ours for the host key; `version` is what `ssh -V` prints.
bool knows_host_keys_by_command(std::string_view version);

/// `ssh` and all options that every use for a sandbox has; the caller adds its own and the host `sandbox`. With `by_command` the server
/// must show the key that the gateway told of.
std::vector<std::string> ssh_words(const std::string& program, const std::string& self, const SshSession& session, bool by_command);

/// How `ssh` is run.
struct SshRun {
  std::vector<std::string> words;
  const SshSession* session = nullptr;
  int input = -1, output = -1;  ///< its stdin and stdout; -1: ours
  bool own_group = false;       ///< a background process: no signal of our terminal reaches it
  bool quiet = false;           ///< stderr to /dev/null
};
absl::StatusOr<pid_t> start_ssh(const SshRun& run);
/// Its exit code; 128+n when signal n ended it. While it waits, Ctrl-C is ssh's alone.
int wait_for(pid_t child);

/// Words for the session with this host's ssh; what `start_ssh` takes.
absl::StatusOr<SshRun> ssh_for(const SshSession& session, const std::vector<std::string>& more);

/// Path of this program.
std::string own_path();

}  // namespace openshell::cli
