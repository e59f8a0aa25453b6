// The contract between the gateway and what runs sandboxes: the `process` driver here, later Docker, Podman, Kubernetes, VM and drivers of
// other vendors behind a socket. Plain values, no protobuf, no CAF.
//
// Threads: every method may be called from several threads at once, and may block for a while (directories, probes, waiting for a process
// to end), so it is called from a worker thread, never from an actor. Calls for one sandbox are serialised by the driver; calls for
// different sandboxes run beside each other. `create` and `start` return as soon as the work is taken on; what becomes of it is reported by
// `watch`. All methods are idempotent as said at each.
//
// Errors: absl::Status whose message is fit for a user. INVALID_ARGUMENT and FAILED_PRECONDITION reach the caller as they are.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/secret.hpp"
#include "messages/values.hpp"

namespace openshell::drivers {

/// What a driver can limit. `false`: a request with this form is refused.
struct ResourceCapabilities {
  bool cpu_limit = false;
  bool memory_limit = false;
  bool gpu_default_selection = false;
  bool gpu_count_selection = false;
};

/// Asked once at the start of the gateway.
struct Capabilities {
  std::string driver_name;
  std::string driver_version;
  std::string default_image;               ///< May be empty.
  bool gateway_manages_lifecycle = false;  ///< The gateway's start-up and shutdown sweeps concern this driver.
  bool supports_sandbox_authentication = false;
  bool driver_reports_runtime_readiness = false;  ///< Never with our own drivers: Ready needs a supervisor's session.
  ResourceCapabilities resources = {};
  std::vector<std::string> notes =
      {};  ///< What an operator should know of this host: mode, limits that can not be enforced. One sentence each.
};

/// A public key with which the sandbox checks its supervisor's token.
struct VerificationKey {
  std::string key_id;
  std::string public_key_pem;
};

/// What the operator set for all supervisors; unset values are not passed on.
struct SupervisorSettings {
  std::optional<std::uint32_t> poll_interval_secs = {};          ///< 1..3600
  std::optional<std::uint32_t> denial_flush_interval_secs = {};  ///< 1..3600
  std::string additional_ca_bundle_pem = {};                     ///< Empty: none. At most 1 MiB; checked again before each launch.
  std::vector<std::string> resolvers = {};                       ///< `address:port`, in order, at most 8.
};

/// Minted by the gateway for one generation; both tokens go to the supervisor only, nothing of it ever to the workload.
struct LaunchAuthentication {
  SessionId session_id = {};             ///< UUID that correlates the two ends of the channel.
  GenerationId runtime_generation = {};  ///< UUID, new at each create and start.
  std::uint64_t session_rotation = 1;
  std::uint64_t auth_epoch = 1;
  std::string gateway_id = {};          ///< `gateway_id` in the issuer of the tokens.
  Secret gateway_token = {};            ///< For the gateway (audience: the gateway).
  std::int64_t gateway_expires_at = 0;  ///< Unix seconds, 0: never.
  Secret sandbox_token = {};            ///< For the sandbox runtime.
  std::int64_t sandbox_expires_at = 0;  ///< Unix seconds, 0: never.
  std::vector<VerificationKey> verification_keys = {};
  std::uint32_t gateway_outage_limit_secs = 120;  ///< 0: unlimited.
  SupervisorSettings supervisor_settings = {};
};

/// CPU and memory in the quantity grammar of Kubernetes (`500m`, `2`, `512Mi`, `1G`); empty: not asked for.
struct ResourceQuantities {
  std::string cpu_request = {};
  std::string cpu_limit = {};
  std::string memory_request = {};
  std::string memory_limit = {};
};

/// The process section of the policy that holds at creation: `sandbox`, a number 1..4294967294, or empty (driver's default).
struct ProcessIdentityWish {
  std::string run_as_user = {};
  std::string run_as_group = {};
};

/// One sandbox as the gateway wants it. On create and start alike: the gateway hands over the stored specification each time.
struct SandboxSpec {
  SandboxId id = {};
  std::string name = {};
  std::string workspace = {};
  std::string image = {};                 ///< `template.image`; empty: the driver's default.
  std::string log_level = {};             ///< Of the supervisor; empty: the driver's default.
  std::vector<std::string> command = {};  ///< The main process, exactly. Empty: the image's login shell with `tty`.
  bool tty = false;
  bool await_main_process_attachment = false;
  std::map<std::string, std::string> template_environment = {};  ///< Of the workload, lower layer.
  std::map<std::string, std::string> environment = {};           ///< Of the workload, upper layer.
  std::map<std::string, std::string> labels = {};
  ResourceQuantities resources = {};
  std::string resources_raw =
      {};  ///< JSON of what the public resources held beside cpu and memory; a driver that does not know it refuses.
  bool gpu = false;
  std::optional<std::uint32_t> gpu_count = {};  ///< With `gpu`; unset counts as 1.
  ProcessIdentityWish identity = {};
  std::string driver_config_json = {};  ///< The user's options for this driver as one JSON object; empty: none.
};

/// One condition of the driver; becomes one of the public status.
struct Condition {
  std::string type;    ///< `Ready`, `WorkloadIdentity`, `OuterFence`, `Suspended`, ...
  std::string status;  ///< `True`, `False`, `Unknown`
  std::string reason = {};
  std::string message = {};
  std::string last_transition_time = {};  ///< RFC 3339 UTC, or empty.
  friend bool operator==(const Condition&, const Condition&) = default;
};

/// What a driver sees of one sandbox now.
struct Observation {
  SandboxId id = {};
  std::string name = {};
  std::string workspace = {};
  std::string instance_id = {};       ///< Name of the running resource; shown as `agent_pod`.
  GenerationId generation = {};       ///< Generation that runs or ran last; empty before the first launch.
  std::string runtime_identity = {};  ///< As `create` returned it.
  bool deleting = false;
  std::vector<Condition> conditions = {};
};

/// Reasons of `Ready=False` that this contract gives a meaning (the gateway decides on them); a driver may add others.
inline constexpr std::string_view kReasonStarting = "Starting";                       ///< Transient.
inline constexpr std::string_view kReasonBackendReady = "BackendReady";               ///< With status True.
inline constexpr std::string_view kReasonContainerExited = "ContainerExited";         ///< The sandbox runtime ended.
inline constexpr std::string_view kReasonContainerStopped = "ContainerStopped";       ///< `stop` was asked for and is done.
inline constexpr std::string_view kReasonRuntimeRestart = "ContainerRuntimeRestart";  ///< Lost with a restart of the host or engine.
inline constexpr std::string_view kReasonSupervisorExited = "SupervisorExited";  ///< Before it confirmed the boundary; the attempt is over.
inline constexpr std::string_view kReasonOuterFenceInvalid = "OuterFenceInvalid";  ///< Evidence incomplete; nothing of the sandbox ran.
inline constexpr std::string_view kReasonLaunchFailed = "LaunchFailed";            ///< Undone; the message says where.
inline constexpr std::string_view kReasonOomKilled = "OOMKilled";

/// Something worth a line in the sandbox's event list; changes no state.
struct PlatformEvent {
  std::int64_t timestamp_ms = 0;  ///< Since the epoch.
  std::string source;             ///< The driver's name.
  std::string type;               ///< `Normal` or `Warning`
  std::string reason;
  std::string message;
  std::map<std::string, std::string> metadata = {};
};

/// One of the three, the one that is set.
struct WatchEvent {
  SandboxId id = {};
  std::optional<Observation> observed = {};  ///< A sandbox as it is now.
  bool deleted = false;                      ///< Nothing is left of it.
  std::optional<PlatformEvent> event = {};
};

/// Ends the watching when destroyed; after its destructor has returned the callback is not running and never runs again. Do not destroy it
/// from within the callback.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;
};

/// A driver. See the head of this file for threads and errors.
class ComputeDriver {
 public:
  ComputeDriver() = default;
  ComputeDriver(const ComputeDriver&) = delete;
  ComputeDriver& operator=(const ComputeDriver&) = delete;
  /// Leaves running sandboxes running; who wants them stopped stops them first.
  virtual ~ComputeDriver() = default;

  [[nodiscard]] virtual Capabilities capabilities() const = 0;

  /// Read-only check of a specification before anything is stored.
  [[nodiscard]] virtual absl::Status validate(const SandboxSpec& spec) = 0;

  /// NOT_FOUND: no such sandbox. The id counts; the name is never looked up.
  [[nodiscard]] virtual absl::StatusOr<Observation> get(const SandboxId& id) = 0;

  /// All sandboxes of this driver instance in any state, sorted by id.
  [[nodiscard]] virtual absl::StatusOr<std::vector<Observation>> list() = 0;

  /// Takes on a new sandbox and starts its first generation in the background. Returns the runtime identity to store with the record.
  /// A workspace that already carries this id (a create by recovery) is adopted. ALREADY_EXISTS: it runs or is being started.
  [[nodiscard]] virtual absl::StatusOr<std::string> create(const SandboxSpec& spec, const LaunchAuthentication& launch) = 0;

  /// A new generation on the same storage. Running already: success, unchanged. NOT_FOUND: nothing is known under this id.
  /// FAILED_PRECONDITION: `expected_runtime_identity` is not empty and differs.
  [[nodiscard]] virtual absl::StatusOr<std::string> start(const SandboxSpec& spec, const LaunchAuthentication& launch,
                                                          std::string_view expected_runtime_identity) = 0;

  /// Ends workload and supervisor and returns when both are gone; cancels a pending start first; keeps storage. Unknown or stopped:
  /// success.
  [[nodiscard]] virtual absl::Status stop(const SandboxId& id) = 0;

  /// Stops, then removes everything, the workspace included. true: something was removed, and the watch reports `deleted`. false: there was
  /// nothing.
  [[nodiscard]] virtual absl::StatusOr<bool> remove(const SandboxId& id) = 0;

  /// Calls `callback` from a thread of the driver: first once for each sandbox there is, then for each change, never two calls at a time.
  /// Duplicates happen, gaps do not. The callback must be quick and must not call the driver.
  [[nodiscard]] virtual std::unique_ptr<Watch> watch(std::function<void(const WatchEvent&)> callback) = 0;
};

}  // namespace openshell::drivers
