// The one thread from which every workload process is forked. It carries the notification filter and the Landlock baseline, so a child has
// them before its first instruction; the rest of openshell-sandbox has neither. Requirements.
//
//   auto launcher = Launcher::start({...}, reaper);               // filter F1 + baseline are now on its thread
//   auto broker = Broker::start({...}, (*launcher)->take_listener(), decider);
//   (*launcher)->spawn(std::move(request), [](absl::StatusOr<LaunchedProcess> process) { ... });
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isolation/file_descriptor.hpp"
#include "isolation/landlock.hpp"
#include "isolation/process_tree.hpp"
#include "isolation/seccomp_filter.hpp"

namespace openshell::isolation {

struct LaunchRequest {
  std::string program;                   ///< absolute, or a name looked up in the PATH of `environment`
  std::vector<std::string> arguments;    ///< argv, argv[0] included; empty: the program alone
  std::vector<std::string> environment;  ///< "KEY=value"; the child gets exactly these
  std::string working_directory = "/";
  /// Become 0, 1, 2 of the child. With `terminal` set (the slave side of a pseudo terminal) it serves all three and becomes the controlling
  /// terminal of a new session.
  FileDescriptor standard_input, standard_output, standard_error;
  FileDescriptor terminal;
  std::shared_ptr<const LandlockLayer> filesystem;  ///< policy layer; null: the baseline alone (qualification only)
  std::optional<std::uint64_t> max_processes;       ///< RLIMIT_NPROC; counts per kernel uid
  std::optional<std::uint64_t> max_open_files;      ///< RLIMIT_NOFILE, hard and soft
  ChildReaper::OnExit on_exit;                      ///< on the reaper thread, exactly once if the launch succeeded
};

struct LaunchedProcess {
  pid_t pid = 0;         ///< also its process group (and session, with a terminal)
  FileDescriptor pidfd;  ///< readable when it ended
  JobTag job;            ///< names its whole tree
};

/// The shell's exit code for a failed launch: 127 the program does not exist, 126 everything else.
[[nodiscard]] int exit_code_of(const absl::Status& launch_failure) noexcept;

class Launcher {
 public:
  static constexpr std::size_t kMaxQueuedLaunches = 64;

  struct Options {
    LandlockFeatures landlock;
    NotifyFilterOptions notify;
    WorkloadFilterOptions workload;
    bool allow_killable = true;  ///< false forces LegacyReadOnly (tests)
    std::string root = "/";      ///< whose children the baseline covers (tests)
  };

  /// Makes the process non-dumpable if it is not yet, starts the thread, installs F1 and the baseline, reads them back. The reaper outlives
  /// the launcher.
  static absl::StatusOr<std::unique_ptr<Launcher>> start(Options options, ChildReaper& reaper);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// The notification listener, once. Until the broker reads it, no child may be launched.
  [[nodiscard]] FileDescriptor take_listener();
  [[nodiscard]] CancellationMode cancellation() const noexcept;

  using OnLaunched = std::function<void(absl::StatusOr<LaunchedProcess>)>;
  /// Queues a launch; `done` runs on the reaper thread, before any on_exit of that process. From any thread. Failures:
  ///   NotFound            the program does not exist (exit code 127), its name is in the message
  ///   PermissionDenied    it may not be executed, or is no executable (126)
  ///   FailedPrecondition  the working directory does not exist or may not be entered (126), or the filesystem layer could not be applied
  ///   ResourceExhausted   queue full, or no process could be forked
  ///   Internal            any other step, named
  void spawn(LaunchRequest request, OnLaunched done);
  /// The same, waiting. Never from the reaper thread.
  absl::StatusOr<LaunchedProcess> spawn_and_wait(LaunchRequest request);

  /// Forks a fully confined child that runs `probe(argument)` instead of a program, with `report` as its standard output, and exits with
  /// its result; for qualification. `probe` is async-signal-safe, apart from reading what `argument` points to: a copy of the parent's
  /// memory at the time of the fork.
  absl::StatusOr<LaunchedProcess> spawn_probe(int (*probe)(void*), void* argument, FileDescriptor report, ChildReaper::OnExit on_exit);

 private:
  struct State;
  explicit Launcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace openshell::isolation
