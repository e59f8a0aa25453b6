#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "messages/supervisor.hpp"
#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/egress_runtime.hpp"
#include "programs/supervisor/interception_ca.hpp"
#include "programs/supervisor/options.hpp"

namespace caf {
class actor_system;
}

namespace openshell::supervisor {

/// What the start-up ends with: everything that the actors go on from.
struct Started {
  ConfigSnapshot running;
  ProviderEnvironment environment;
  std::string process_id;
};

/// From a registered instance to a running main process, in the one order that is allowed: nothing is attached before the gateway has
/// accepted the configuration, and nothing is launched before the boundary is confirmed. Runs on the main thread and waits; it is no actor,
/// since nothing else of the process exists yet. [ST-09, AD rows]
class Startup {
 public:
  struct Limits {
    std::chrono::milliseconds repair_pause{2'000};   ///< after a rejected configuration
    std::chrono::milliseconds first_backoff{1'000};  ///< 1, 2, 4, 4 s
    int attempts = 5;                                ///< of each call to the gateway
  };

  /// Waits, or returns true at once when the process is to stop.
  using Pause = std::function<bool(std::chrono::milliseconds)>;

  Startup(const Options& options, caf::actor_system& system, GatewayClient gateway, std::shared_ptr<BoundaryClient> boundary,
          std::string instance_id, Pause pause, Limits limits)
      : options_{options},
        system_{system},
        gateway_{std::move(gateway)},
        boundary_{std::move(boundary)},
        instance_id_{std::move(instance_id)},
        pause_{std::move(pause)},
        limits_{limits} {}
  ~Startup();
  Startup(const Startup&) = delete;
  Startup& operator=(const Startup&) = delete;

  /// Registers at the gateway. Needs no data plane, which is made meanwhile, and no sandbox: that one is waited for beside it, from here
  /// on.
  absl::Status introduce();

  /// Admits; once the sandbox listens attaches and confirms; publishes the admitted generation to the engine. `serve` runs when traffic may
  /// be taken, before main. Cancelled: the process is to stop. Any other error ends the process.
  absl::StatusOr<Started> run(EgressRuntime& runtime, const PublicCa& ca, const std::function<void()>& serve);

 private:
  struct Discovery;
  template <class T, class Call>
  absl::StatusOr<T> retried(const char* operation, Call call);
  absl::StatusOr<ConfigSnapshot> config();
  absl::StatusOr<ProviderEnvironment> environment();
  absl::Status report(const AdmissionReport& report);
  absl::Status register_instance();
  void discover();
  absl::StatusOr<std::shared_ptr<sandbox::v1::SandboxPolicy>> image_policy();
  absl::StatusOr<bool> supply_policy(const ConfigSnapshot& snapshot);
  absl::Status reject(const ConfigSnapshot& snapshot, std::uint64_t environment_revision, const absl::Status& why, const char* text);
  absl::StatusOr<Candidate> admit(EgressRuntime& runtime, std::unique_ptr<PreparedRuntime>& prepared);
  absl::Status bind(const Candidate& admitted);

  const Options& options_;
  caf::actor_system& system_;
  const GatewayClient gateway_;
  const std::shared_ptr<BoundaryClient> boundary_;
  const std::string instance_id_;  // of this supervisor
  const Pause pause_;
  const Limits limits_;
  std::string fence_;                              // the instance that the gateway knows
  std::string last_rejection_;                     // (config revision, diagnostic): logged once
  std::optional<ConfigSnapshot> registered_;       // what registering saw: the first that is tried
  std::optional<ProviderEnvironment> prefetched_;  // asked for with the registration
  std::shared_ptr<Discovery> discovery_;           // under way from introduce() on
  std::shared_ptr<sandbox::v1::SandboxPolicy> discovered_;
  std::string uploaded_hash_;  // hash of the snapshot that an upload answered: one upload each
  boundary::BoundaryPolicy static_policy_;
};

/// The static part of a policy, as the sandbox enforces it; the CA directory is readable.
boundary::BoundaryPolicy static_policy(const sandbox::v1::SandboxPolicy& policy);

/// `<state_dir>/confirmed`: tells the driver that this generation got past Confirm.
absl::Status write_confirmed(const std::string& state_dir, const std::string& generation);

/// Temp file, fsync, rename, fsync of the directory.
absl::Status write_durably(const std::string& path, const std::string& content);

}  // namespace openshell::supervisor
