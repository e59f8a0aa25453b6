// The seam between the gateway's frame (programs/gateway, api/) and its actor tree (actors/gateway, api/sandboxes): what the program gives,
// what it gets. Start order of the program: config, logging, store (migrated, workspace `default` made), tokens, compute driver, control
// plane, handlers, listeners, ready. Stop order: no new calls, control plane drained, store closed.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/sandbox_identities.hpp"

namespace openshell::storage {
class Store;
}
namespace openshell::providers {
class CredentialStore;
}

namespace openshell::api {

class Router;
class TokenAuthority;

/// What every driver hands to the supervisors it starts. Paths are absolute.
struct SupervisorSettings {
  std::string gateway_endpoint;  ///< "https://127.0.0.1:17670" or "http://..."
  std::string gateway_ca_path;   ///< guest_tls_ca; empty without TLS
  std::uint32_t poll_interval_secs = 10;
  std::uint32_t denial_flush_interval_secs = 10;
  std::string additional_ca_bundle;    ///< empty: none
  std::vector<std::string> resolvers;  ///< "address:port"; empty: the host's
};

struct ControlPlaneOptions {
  storage::Store* store = nullptr;         ///< outlives the control plane
  const TokenAuthority* tokens = nullptr;  ///< null: no gateway_jwt configured; drivers refuse launches
  providers::CredentialStore* credentials = nullptr;
  std::string gateway_name;
  std::string gateway_id;
  std::string state_dir;          ///< STATE, e.g. /var/lib/openshell
  std::string run_dir;            ///< RUN
  std::string bin_dir;            ///< directory of openshell-gateway: its sibling programs are there
  std::string driver_name;        ///< "process"
  std::string driver_table_toml;  ///< [openshell.drivers.<name>] as TOML text, unchecked
  SupervisorSettings supervisor;
  bool config_push = true;  ///< config_delivery_mode
  std::string policy_validation_failure_mode = "fail_closed";
};

/// Implemented by api/sandboxes. All calls are thread-safe.
class ControlPlane : public SandboxIdentities {
 public:
  /// Adds the handlers of the sandbox, config, policy, log, session, relay and exec RPCs. Once, before the server starts.
  virtual void add_handlers(Router& router) = 0;
  /// Recovers transitions and starts loops. Once, after the listeners are bound; a failing sandbox never stops the gateway.
  virtual void start() = 0;
  /// Sandboxes are stopped unless the driver was told to keep them (`keep_on_shutdown`); then the actors end. At most `limit`. Blocks;
  /// called from main only.
  virtual absl::Status shutdown(std::chrono::seconds limit) = 0;
  /// The driver's entry of GetGatewayInfo.
  struct DriverInfo {
    std::string name;
    std::string version;
    bool cpu_limit = false;
    bool memory_limit = false;
  };
  [[nodiscard]] virtual DriverInfo driver() const = 0;
  /// Names of sandboxes that a provider is attached to: asked by DeleteProvider.
  virtual void sandboxes_with_provider(const std::string& workspace, const std::string& provider,
                                       std::function<void(absl::StatusOr<std::vector<std::string>>)> then) = 0;
  /// A provider changed (created, deleted, credentials set): attached sandboxes get their nudge.
  virtual void provider_changed(const std::string& workspace, const std::string& provider) = 0;
};

}  // namespace openshell::api
