#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "messages/supervisor.hpp"
#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/egress_runtime.hpp"
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

/// The interception CA as the workload sees it.
struct PublicCa {
  std::string certificate_pem;
  std::string bundle_pem;  ///< the system's roots, the CA, the operator's additional roots
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

  Startup(const Options& options, caf::actor_system& system, GatewayClient gateway, std::shared_ptr<BoundaryClient> boundary, Pause pause,
          Limits limits)
      : options_{options},
        system_{system},
        gateway_{std::move(gateway)},
        boundary_{std::move(boundary)},
        pause_{std::move(pause)},
        limits_{limits} {}

  /// Registers at the gateway and waits until the sandbox listens. Needs no data plane, which is made meanwhile.
  absl::Status introduce();

  /// Admits; publishes the admitted generation to the engine, attaches and confirms. `serve` runs when traffic may be taken, before main.
  /// Cancelled: the process is to stop. Any other error ends the process.
  absl::StatusOr<Started> run(EgressRuntime& runtime, const PublicCa& ca, const std::function<void()>& serve);

 private:
  template <class T, class Call>
  absl::StatusOr<T> retried(const char* operation, Call call);
  absl::StatusOr<ConfigSnapshot> config();
  absl::StatusOr<ProviderEnvironment> environment();
  absl::Status report(const AdmissionReport& report);
  absl::Status register_instance();
  absl::StatusOr<std::shared_ptr<sandbox::v1::SandboxPolicy>> image_policy();
  absl::StatusOr<bool> supply_policy(const ConfigSnapshot& snapshot);
  absl::Status reject(const ConfigSnapshot& snapshot, std::uint64_t environment_revision, const absl::Status& why, const char* text);
  absl::StatusOr<Candidate> admit(EgressRuntime& runtime, std::unique_ptr<PreparedRuntime>& prepared);
  absl::Status bind(const Candidate& admitted);

  const Options& options_;
  caf::actor_system& system_;
  const GatewayClient gateway_;
  const std::shared_ptr<BoundaryClient> boundary_;
  const Pause pause_;
  const Limits limits_;
  std::string fence_;           // the instance that the gateway knew before this one
  std::string last_rejection_;  // (config revision, diagnostic): logged once
  std::shared_ptr<sandbox::v1::SandboxPolicy> discovered_;
  bool discovery_failed_ = false;
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
