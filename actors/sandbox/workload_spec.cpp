#include "actors/sandbox/workload_spec.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "actors/sandbox/environment.hpp"

namespace openshell::sandbox {

namespace {

absl::Status no_shell() {
  return absl::NotFoundError("sandbox image does not provide an executable shell at /bin/bash, /usr/bin/bash, or /bin/sh");
}

/// The image's own SFTP server: the helper is a process of the workload like any other, confined as all are.
absl::StatusOr<std::string> helper_program(const std::string& name, bool terminal) {
  if (name != "sftp") return absl::InvalidArgumentError("unknown runtime helper");
  if (terminal) return absl::InvalidArgumentError("the sftp helper takes no terminal");
  for (const char* path :
       {"/usr/lib/openssh/sftp-server", "/usr/lib/ssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/libexec/sftp-server"}) {
    if (::access(path, X_OK) == 0) return std::string{path};
  }
  return absl::NotFoundError(
      "the sandbox's image has no sftp-server (Debian: openssh-sftp-server); use `openshell sandbox upload` and `download` instead");
}

EnvironmentInputs inputs_of(const WorkloadFrame& frame, const std::optional<std::string>& workdir) {
  EnvironmentInputs inputs;
  inputs.image = &frame.image_env;
  inputs.user = &frame.user_env;
  inputs.provider = &frame.provider_env;
  inputs.user_name = user_of(frame.policy.run_as_user);
  inputs.home = home_of(workdir, frame.policy.run_as_user, frame.accounts);
  inputs.shell = frame.shell;
  inputs.trust = frame.trust;
  return inputs;
}

absl::Status finish(WorkloadCommand& command, const EnvironmentInputs& inputs) {
  command.environment = build_environment(inputs);
  std::size_t bytes = 0;
  for (const auto& line : command.environment) bytes += line.size() + 1;
  if (bytes > kMaxEnvironmentBytes) return absl::ResourceExhaustedError("environment of the process is larger than 1048576 bytes");
  return absl::OkStatus();
}

std::uint16_t side_of(std::string_view text) {
  std::uint16_t side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  return error == std::errc{} && end == text.data() + text.size() ? side : std::uint16_t{0};
}

/// Takes the size out of the environment of a request.
TerminalSize take_size(std::vector<std::pair<std::string, std::string>>& environment) {
  TerminalSize size{0, 0};
  std::erase_if(environment, [&](const auto& entry) {
    if (entry.first == "COLUMNS") return size.columns = side_of(entry.second), true;
    if (entry.first == "LINES") return size.rows = side_of(entry.second), true;
    return false;
  });
  return size.columns != 0 && size.rows != 0 ? size : TerminalSize{};
}

}  // namespace

absl::StatusOr<WorkloadCommand> main_command(const WorkloadFrame& frame, const boundary::AgentSpec& spec) {
  WorkloadCommand command;
  if (spec.program.empty()) {
    if (frame.shell.empty())
      return absl::NotFoundError("sandbox image does not provide an executable login shell at /bin/bash, /usr/bin/bash, or /bin/sh");
    command.program = frame.shell;
    command.arguments = {frame.shell, "-l"};
  } else {
    command.program = spec.program;
    command.arguments = {spec.program};
    command.arguments.insert(command.arguments.end(), spec.args.begin(), spec.args.end());
  }
  command.working_directory = spec.workdir && !spec.workdir->empty() ? *spec.workdir : "/sandbox";
  EnvironmentInputs inputs = inputs_of(frame, spec.workdir);
  inputs.main = true;
  inputs.terminal = command.terminal = spec.interactive;
  if (auto status = finish(command, inputs); !status.ok()) return status;
  return command;
}

absl::StatusOr<WorkloadCommand> exec_command(const WorkloadFrame& frame, const boundary::ExecSpec& spec) {
  WorkloadCommand command;
  command.terminal = spec.pty;
  if (spec.runtime_helper) {
    auto program = helper_program(*spec.runtime_helper, spec.pty);
    if (!program.ok()) return program.status();
    command.program = *program;
    command.arguments = {*program};
  } else if (spec.shell) {
    if (frame.shell.empty()) return no_shell();
    command.program = frame.shell;
    command.arguments = {frame.shell};
    if (spec.shell->command) {
      command.arguments.emplace_back(spec.shell->login ? "-lc" : "-c");
      command.arguments.push_back(*spec.shell->command);
    } else if (spec.pty) {
      command.arguments.emplace_back("-i");
    }
  } else {
    command.program = spec.program;
    command.arguments = {spec.program};
    command.arguments.insert(command.arguments.end(), spec.args.begin(), spec.args.end());
  }
  const auto& workdir = spec.workdir && !spec.workdir->empty() ? spec.workdir : frame.workdir;
  command.working_directory = workdir && !workdir->empty() ? *workdir : "/sandbox";
  EnvironmentInputs inputs = inputs_of(frame, frame.workdir);  // HOME follows the sandbox's work directory, not that of one command
  inputs.exec = spec.env;
  if (spec.pty) command.size = take_size(inputs.exec);
  inputs.terminal = spec.pty;
  if (auto status = finish(command, inputs); !status.ok()) return status;
  return command;
}

isolation::FilesystemPolicy file_rules(const WorkloadFrame& frame) {
  isolation::FilesystemPolicy rules;
  rules.read_only = frame.policy.read_only;
  rules.read_write = frame.policy.read_write;
  rules.compatibility = frame.policy.landlock == boundary::LandlockMode::hard_requirement
                            ? isolation::LandlockCompatibility::HardRequirement
                            : isolation::LandlockCompatibility::BestEffort;
  const auto listed = [&](const std::string& path) {
    return std::find(rules.read_only.begin(), rules.read_only.end(), path) != rules.read_only.end() ||
           std::find(rules.read_write.begin(), rules.read_write.end(), path) != rules.read_write.end();
  };
  const std::string workdir = frame.workdir && !frame.workdir->empty() ? *frame.workdir : "/sandbox";
  if (frame.policy.include_workdir && !listed(workdir)) rules.read_write.push_back(workdir);
  if (rules.read_only.empty() && rules.read_write.empty()) return rules;
  for (const std::string& path : {frame.trust ? frame.ca_directory : std::string(), frame.provider_directory}) {
    if (path.empty() || listed(path)) continue;
    rules.read_only.push_back(path);
    rules.optional.push_back(path);
  }
  // Terminals of this sandbox, which are no one else's: what a process has as its own, and what `script` or `tmux` make.
  for (const char* path : {"/dev/tty", "/dev/pts"}) {
    if (listed(path)) continue;
    rules.read_write.emplace_back(path);
    rules.optional.emplace_back(path);
  }
  // Paths that the supervisor adds to every policy with network rules; an image may lack some of them.
  for (const char* path : {"/usr", "/lib", "/etc", "/app", "/var/log", "/proc", "/dev/urandom", "/tmp", "/dev/null"})
    rules.optional.emplace_back(path);
  return rules;
}

}  // namespace openshell::sandbox
