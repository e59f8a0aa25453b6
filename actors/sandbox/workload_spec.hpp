// From a start_agent or exec request to what the launcher is asked: program, arguments, environment, directory, file rules. Pure but for
// the questions it asks of the image.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isolation/boundary/control.hpp"
#include "isolation/landlock.hpp"

namespace openshell::sandbox {

/// What a generation fixes when its main process starts.
struct WorkloadFrame {
  boundary::BoundaryPolicy policy;
  std::optional<std::string> workdir;
  boundary::Environment image_env, user_env;
  boundary::Environment provider_env;  ///< current; each process gets that of its own launch
  bool trust = false;                  ///< the interception CA was installed
  std::string ca_directory;
  std::string provider_directory;
  std::string shell;     ///< the image's login shell; empty: none
  std::string accounts;  ///< the image's /etc/passwd
};

struct TerminalSize {
  std::uint16_t columns = 80;
  std::uint16_t rows = 24;
  friend bool operator==(const TerminalSize&, const TerminalSize&) = default;
};

struct WorkloadCommand {
  std::string program;
  std::vector<std::string> arguments;  ///< argv
  std::vector<std::string> environment;
  std::string working_directory;
  bool terminal = false;
  TerminalSize size;  ///< of the terminal, from the process's first instruction on
};

/// NotFound where the image has no shell that is needed, Unimplemented for a runtime helper, ResourceExhausted for an environment over 1
/// MiB.
[[nodiscard]] absl::StatusOr<WorkloadCommand> main_command(const WorkloadFrame& frame, const boundary::AgentSpec& spec);
/// With a terminal, COLUMNS and LINES of the request's environment are its size (1..65,535 each, else 80x24) and not passed on: a program
/// that found them there would ignore every later change of size.
[[nodiscard]] absl::StatusOr<WorkloadCommand> exec_command(const WorkloadFrame& frame, const boundary::ExecSpec& spec);

/// The policy's file rules with what every child needs besides (trust and provider files, read-only). Without any path in the policy
/// nothing is added: an added path would turn "no rule" into "only this path".
[[nodiscard]] isolation::FilesystemPolicy file_rules(const WorkloadFrame& frame);

}  // namespace openshell::sandbox
