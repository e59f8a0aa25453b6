// The driver's own state: sandboxes, workers, and the thread that watches processes and tells subscribers.
//
// Locks, in the order in which they may be taken: Sandbox::operation (one per sandbox, held through a launch, stop or delete), then
// `mutex_` (short, for everything that is read by others), or `delivery_` (held while a subscriber is called) then `mutex_`.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "drivers/driver.hpp"
#include "drivers/process/admission.hpp"
#include "drivers/process/identity_slots.hpp"
#include "drivers/process/launch_attempt.hpp"

namespace openshell::drivers::process {

/// Runs tasks on a few threads; the destructor lets what runs finish and drops what waits.
class Workers {
 public:
  explicit Workers(std::size_t threads);
  ~Workers();
  void post(std::function<void()> task);

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

/// Where a sandbox is in its life, as far as the driver goes.
enum class Phase { kStarting, kRunning, kEnded, kStopped };

struct Sandbox {
  std::mutex operation;
  // Under ProcessDriver::mutex_:
  records::SandboxState state;
  Phase phase = Phase::kStarting;
  std::string reason, message, transition_time;
  std::string generation, evidence;
  bool deleting = false;
  std::shared_ptr<LaunchAttempt> attempt;  ///< While one runs.
  // Under `operation`:
  RunningGeneration running;
};

class ProcessDriver final : public ComputeDriver {
 public:
  ProcessDriver(DriverContext context, absl::Status unusable, std::vector<std::string> notes, Descriptor state_lock);
  ~ProcessDriver() override;

  [[nodiscard]] Capabilities capabilities() const override;
  [[nodiscard]] absl::Status validate(const SandboxSpec& spec) override;
  [[nodiscard]] absl::StatusOr<Observation> get(const SandboxId& id) override;
  [[nodiscard]] absl::StatusOr<std::vector<Observation>> list() override;
  [[nodiscard]] absl::StatusOr<std::string> create(const SandboxSpec& spec, const LaunchAuthentication& launch) override;
  [[nodiscard]] absl::StatusOr<std::string> start(const SandboxSpec& spec, const LaunchAuthentication& launch,
                                                  std::string_view expected_runtime_identity) override;
  [[nodiscard]] absl::Status stop(const SandboxId& id) override;
  [[nodiscard]] absl::StatusOr<bool> remove(const SandboxId& id) override;
  [[nodiscard]] std::unique_ptr<Watch> watch(std::function<void(const WatchEvent&)> callback) override;

  /// Takes over what an earlier gateway process left. Once, before the first call.
  void reconcile();

 private:
  friend class Subscription;
  struct Subscriber {
    std::function<void(const WatchEvent&)> callback;
    bool has_snapshot = false;
  };
  using SandboxPtr = std::shared_ptr<Sandbox>;

  // driver_lifecycle.cpp
  absl::StatusOr<SandboxPtr> enlist(const SandboxSpec& spec, const Admitted& admitted);
  absl::Status begin(const SandboxPtr& sandbox, const SandboxSpec& spec, const LaunchAuthentication& launch, const Admitted& admitted);
  void launch(const SandboxPtr& sandbox, const std::shared_ptr<LaunchAttempt>& attempt, const std::string& id);
  void examine(const std::string& id);
  void orphaned(const SandboxPtr& sandbox, const std::string& id);
  void adopt(const std::string& id);
  void adopt_generation(const SandboxPtr& sandbox, const std::string& id);
  void cancel_launch(const SandboxPtr& sandbox);
  [[nodiscard]] Parties parties(const records::SandboxState& state) const;
  void turn(const SandboxPtr& sandbox, Phase phase, std::string_view reason, std::string message);

  // driver_watch.cpp
  void watch_processes();
  void follow(const std::string& id, const RunningGeneration& running);
  void follow(const std::string& id, int descriptor);
  void follow_exits(const std::string& id);
  void changed(const std::string& id);
  void tell(PlatformEvent event, const std::string& id);
  void wake();
  void deliver();

  [[nodiscard]] SandboxPtr find(const std::string& id) const;
  [[nodiscard]] Observation observe(const Sandbox& sandbox) const;

  const DriverContext context_;
  const absl::Status unusable_;
  const std::vector<std::string> notes_;
  const Descriptor state_lock_;

  mutable std::mutex mutex_;
  std::map<std::string, SandboxPtr> sandboxes_;
  IdentitySlots slots_;

  std::mutex delivery_;
  std::map<std::uint64_t, Subscriber> subscribers_;  ///< Under `delivery_`.
  std::uint64_t next_subscriber_ = 1;
  std::set<std::string> changed_;                             ///< Ids to tell about; under `mutex_`, like the next.
  std::deque<std::pair<std::string, PlatformEvent>> events_;  ///< At most kMaxQueuedEvents; the oldest is dropped.
  std::map<std::uint64_t, std::string> followed_;             ///< What a number in epoll means.
  std::map<int, std::string> exit_watches_;                   ///< inotify watch -> id
  std::uint64_t next_followed_ = 1;

  Descriptor epoll_, wake_, inotify_;
  std::atomic<bool> ending_ = false;
  Workers workers_;
  std::thread watcher_;
};

inline constexpr std::size_t kMaxQueuedEvents = 256;
/// A runtime whose supervisor is gone ends by itself after 30 s; this much later it is ended.
inline constexpr std::chrono::seconds kOrphanedRuntime{40};
inline constexpr std::size_t kWorkerThreads = 8;  ///< Launches that run beside each other.

}  // namespace openshell::drivers::process
