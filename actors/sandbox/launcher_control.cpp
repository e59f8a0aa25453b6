#include "actors/sandbox/launcher_control.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <filesystem>

#include "actors/sandbox/workload_files.hpp"

namespace openshell::sandbox {

using isolation::FileDescriptor;

namespace {

absl::Status make_pipe(FileDescriptor& read_end, FileDescriptor& write_end) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  read_end.reset(fds[0]);
  write_end.reset(fds[1]);
  return absl::OkStatus();
}

/// Both ends of the standard streams: `ours` for the channel, the rest into the request.
absl::Status make_streams(const WorkloadCommand& command, ManagedProcess::Ends& ours, isolation::LaunchRequest& request) {
  if (command.terminal) {
    ours.terminal.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    char slave[64];
    if (!ours.terminal || ::grantpt(ours.terminal.get()) != 0 || ::unlockpt(ours.terminal.get()) != 0 ||
        ::ptsname_r(ours.terminal.get(), slave, sizeof slave) != 0) {
      return absl::ErrnoToStatus(errno, "pseudo terminal");
    }
    request.terminal.reset(::open(slave, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!request.terminal) return absl::ErrnoToStatus(errno, "pseudo terminal");
    const winsize size{command.size.rows, command.size.columns, 0, 0};
    ::ioctl(ours.terminal.get(), TIOCSWINSZ, &size);
    return absl::OkStatus();
  }
  if (auto s = make_pipe(request.standard_input, ours.standard_input); !s.ok()) return s;
  if (auto s = make_pipe(ours.standard_output, request.standard_output); !s.ok()) return s;
  return make_pipe(ours.standard_error, request.standard_error);
}

boundary::ExitStatus status_of(isolation::ExitStatus status) {
  return {status.kind == isolation::ExitStatus::Kind::Signaled, status.kind == isolation::ExitStatus::Kind::Unknown ? -1 : status.value};
}

LaunchOutcome launch(LauncherControlState& state, const ProcessOrder& order, bool main, const absl::StatusOr<WorkloadCommand>& command) {
  const auto failed = [](const absl::Status& status) { return LaunchOutcome{nullptr, std::string(status.message())}; };
  if (!command.ok()) return failed(command.status());
  const isolation::FilesystemPolicy rules = file_rules(state.with.frame);
  std::error_code ignored;
  for (const auto& path : rules.read_write) {  // as far as this identity may: a missing one is reported below
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) std::filesystem::create_directories(path, ignored);
  }
  auto layer = isolation::prepare_landlock_policy(state.with.landlock, rules);
  if (!layer.ok()) return failed(layer.status());
  for (const auto& notice : layer->notices) {
    if (notice.kind == isolation::LandlockNotice::Kind::Degraded) spdlog::warn("landlock: {} left out: {}", notice.path, notice.reason);
  }
  isolation::LaunchRequest request;
  request.program = command->program;
  request.arguments = command->arguments;
  request.environment = command->environment;
  request.working_directory = command->working_directory;
  request.filesystem = std::make_shared<const isolation::LandlockLayer>(std::move(*layer));
  ManagedProcess::Ends ours;
  if (auto status = make_streams(*command, ours, request); !status.ok()) return failed(status);
  auto process = ManagedProcess::create(*state.with.io, order.process_id, main, std::move(ours), state.with.limits);
  request.on_exit = [process, on_exit = order.on_exit](pid_t, isolation::ExitStatus status) {
    process->exited(status_of(status));
    if (on_exit) on_exit(process);
  };
  auto launched = state.with.launcher->spawn_and_wait(std::move(request));
  if (!launched.ok()) {
    return {nullptr, main ? fmt::format("failed to spawn sandbox entrypoint process '{}': {}", command->program,
                                        std::string(launched.status().message()))
                          : fmt::format("failed to spawn '{}': {}", command->program, std::string(launched.status().message()))};
  }
  process->launched(std::move(*launched));
  ++state.launched;
  return {std::move(process), {}};
}

LaunchOutcome launch_main(LauncherControlState& state, const ProcessOrder& order) {
  const auto& start = std::get<boundary::StartAgent>(order.request->envelope.request);
  WorkloadFrame& frame = state.with.frame;
  frame.policy = start.policy;
  frame.workdir = start.spec.workdir;
  frame.provider_env = start.provider_env;
  frame.shell = login_shell(state.with.root);
  frame.accounts = read_accounts(state.with.root);
  state.provider_revision = start.provider_env_revision;
  if (start.ca_cert) {
    if (auto status = install_trust(frame.ca_directory, *start.ca_cert, *start.ca_bundle); !status.ok()) {
      return {nullptr, fmt::format("trust files: {}", std::string(status.message()))};
    }
    frame.trust = true;
  }
  if (auto status = install_provider_files(frame.provider_directory, start.provider_files); !status.ok())
    return {nullptr, std::string(status.message())};
  return launch(state, order, true, main_command(frame, start.spec));
}

Outcome update_environment(LauncherControlState& state, const boundary::UpdateProviderEnvironment& update) {
  if (update.generation <= state.provider_generation) {
    return outcome(boundary::ProviderEnvironmentUpdated{state.provider_revision, state.provider_generation, false});
  }
  if (auto status = install_provider_files(state.with.frame.provider_directory, update.provider_files); !status.ok()) {
    return refusal(boundary::ErrorKind::process, std::string(status.message()));
  }
  state.with.frame.provider_env = update.provider_env;
  state.provider_generation = update.generation;
  state.provider_revision = update.revision;
  return outcome(boundary::ProviderEnvironmentUpdated{update.revision, update.generation, true});
}

}  // namespace

LauncherControl::behavior_type launcher_control(LauncherControl::stateful_pointer<LauncherControlState> self, LauncherDependencies with,
                                                Directory directory) {
  self->state.reporter = Reporter{directory, "launcher_control", "launcher_control", "sandbox"};
  self->state.with = std::move(with);
  const auto snapshot = [self] {
    ActorSnapshot s;
    s.summary = fmt::format("{} processes launched, provider environment {}", self->state.launched, self->state.provider_generation);
    return s;
  };
  const auto handled = [self, snapshot](LaunchOutcome result) {
    self->state.reporter.note_handled();
    if (!result.process) self->state.reporter.note_failed("a launch failed");
    self->state.reporter.touch(self, snapshot);
    return result;
  };
  LauncherControl::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot()); },
      [=](discover_atom) { return outcome(discover_image_policy(self->state.with.root)); },
      [=](files_atom) {
        return provider_files_supported(self->state.with.frame.provider_directory)
                   ? outcome(boundary::ProviderFilesSupported{})
                   : refusal(boundary::ErrorKind::invalid, "provider files are not supported by this runtime");
      },
      [=](main_atom, const LaunchOrder& order) { return handled(launch_main(self->state, *order.order)); },
      [=](launch_atom, const LaunchOrder& order) {
        const auto& spec = std::get<boundary::Exec>(order.order->request->envelope.request).spec;
        return handled(launch(self->state, *order.order, false, exec_command(self->state.with.frame, spec)));
      },
      [=](environ_atom, const Operation& operation) {
        auto answer = update_environment(self->state, std::get<boundary::UpdateProviderEnvironment>(operation.request->envelope.request));
        self->state.reporter.note_handled();
        self->state.reporter.touch(self, snapshot);
        return answer;
      },
  };
  return self->state.reporter.watch(self, snapshot, std::move(handlers));
}

}  // namespace openshell::sandbox
