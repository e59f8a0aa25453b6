// One attempt to start a generation of a sandbox, from directories to the running supervisor. What it made is undone in reverse when it
// fails; workspace, state and logs of earlier generations stay.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <string>

#include "drivers/driver.hpp"
#include "drivers/process/cgroup_limits.hpp"
#include "drivers/process/fence_evidence.hpp"
#include "drivers/process/launch_material.hpp"
#include "drivers/process/mapped_files.hpp"
#include "drivers/process/process_driver.hpp"
#include "drivers/process/sandbox_files.hpp"
#include "process_driver.pb.h"

namespace openshell::drivers::process {

namespace records = internal::process_driver::v1;

/// What all attempts of a driver share; constant after the start.
struct DriverContext {
  ProcessDriverOptions options;
  LaunchMode mode = LaunchMode::kRoot;
  SandboxFiles files;
  CgroupRoot cgroups;
  SubordinateIds subordinate = {};                          ///< Of that mode.
  std::optional<std::uint64_t> tmp_bytes, workspace_bytes;  ///< What tmp_size_limit and workspace_size_limit say; unset: no limit.
};

/// Maps of a sandbox whose workload has these kernel ids, and what the caller is in them.
IdMapping id_mapping(const DriverContext& context, const Parties& parties, std::uint32_t uid, std::uint32_t gid);
/// In the subordinate mode the workload's files are worked on by a helper from now on; in others nothing happens.
void delegate_files(const DriverContext& context, const std::string& id, const Parties& parties, std::uint32_t uid, std::uint32_t gid);
/// The parts of a plan that say who the workload is.
void set_identity(LaunchPlan& plan, const DriverContext& context, const Parties& parties, std::uint32_t uid, std::uint32_t gid);

/// One generation that runs, as the driver holds it.
struct RunningGeneration {
  records::Generation record;
  Descriptor init, supervisor, monitor;  ///< pidfds
  Descriptor expiry;                     ///< timerfd: until when an orphaned runtime has to end by itself; unset while it is no orphan
  pid_t monitor_child = -1;              ///< Set where the monitor is a child of this process, which then has to reap it.
};

/// Why an attempt ended, beside the text: the reason of the Ready condition.
struct LaunchFailure {
  std::string reason;
  absl::Status status;
};

struct LaunchInputs {
  SandboxSpec spec;
  LaunchAuthentication launch;
  records::SandboxState state;
  Parties parties;
  Limits limits;
};

class LaunchAttempt {
 public:
  LaunchAttempt(const DriverContext& context, LaunchInputs inputs) : context_{context}, in_{std::move(inputs)} {}
  LaunchAttempt(const LaunchAttempt&) = delete;
  LaunchAttempt& operator=(const LaunchAttempt&) = delete;

  /// Blocks: about 0.3 s, 0.2 s of which the outside listeners are listened to. CANCELLED after `cancel`.
  absl::StatusOr<RunningGeneration> run();
  /// From another thread: the attempt ends soon, undone.
  void cancel();

  /// `reason` of the Ready condition after a failed run.
  [[nodiscard]] const std::string& failure_reason() const { return reason_; }

 private:
  absl::Status launch(RunningGeneration& running);
  absl::Status prepare_directories(RootPlan& root);
  absl::Status spawn_monitor(RunningGeneration& running);
  absl::StatusOr<Frame> ask(Word word, std::string_view body, Word expected);
  absl::Status prove_fence(RunningGeneration& running, const RootPlan& root, LaunchFacts& facts);
  [[nodiscard]] FenceExpectation expectation(const RootPlan& root) const;
  absl::Status release(RunningGeneration& running, const LaunchFacts& facts);
  void undo(RunningGeneration& running);
  [[nodiscard]] LaunchPlan plan(const RootPlan& root) const;
  [[nodiscard]] absl::Status check_cancelled() const;
  [[nodiscard]] const std::string& id() const { return in_.spec.id.str(); }

  const DriverContext& context_;
  LaunchInputs in_;
  std::string reason_ = std::string(kReasonLaunchFailed);
  FenceFacts found_;                                                    ///< By prove_fence.
  std::future<absl::StatusOr<pki::SessionCertificates>> certificates_;  ///< Made while the sandbox's root is.
  std::atomic<bool> cancelled_ = false;
  std::mutex control_mutex_;  // cancel() and the end of run() both touch the socket
  Descriptor control_;
};

/// Ends a generation: supervisor first (SIGTERM, it stops the workload in order), then PID 1, then the cgroup; then removes R. Returns when
/// all of it is gone. `grace` is what each of the two gets before SIGKILL; zero kills at once.
absl::Status end_generation(const DriverContext& context, const std::string& id, RunningGeneration& running,
                            std::chrono::milliseconds grace);

/// The plan of the probe and of launches alike: inputs of the root from the paths of a sandbox.
RootInputs root_inputs(const DriverContext& context, const std::string& id, const std::string& name, std::uint32_t uid, std::uint32_t gid);

/// Starts the monitor program with its socket; pidfd and pid go into `running`, `log` gets its stderr.
absl::StatusOr<Descriptor> start_monitor(const std::string& program, const std::string& log, RunningGeneration& running);

}  // namespace openshell::drivers::process
