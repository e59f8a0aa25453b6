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
#include "drivers/driver.hpp"

namespace openshell::storage {
class Store;
class Transaction;
}  // namespace openshell::storage
namespace openshell::providers {
class CredentialStore;
}

namespace openshell::api {

class Router;
class TokenAuthority;

/// What CreateSshSession tells of this gateway.
struct SshSettings {
  std::string gateway_host = "127.0.0.1";  ///< as bound; clients put in what they reached it by
  std::uint32_t gateway_port = 0;
  bool tls = false;
  std::chrono::seconds session_ttl{86'400};  ///< 0: sessions do not expire
};

struct ControlPlaneOptions {
  storage::Store* store = nullptr;         ///< outlives the control plane, as do the next three
  const TokenAuthority* tokens = nullptr;  ///< null: no signing key configured; a launch is then FAILED_PRECONDITION
  const providers::CredentialStore* credentials = nullptr;
  drivers::ComputeDriver* driver = nullptr;  ///< made and probed by the program
  drivers::SupervisorSettings supervisor;    ///< for each launch
  SshSettings ssh;
  /// Seconds without the gateway after which a supervisor ends its workload; 0: never.
  std::uint32_t gateway_outage_limit_secs = 120;
  std::string gateway_name = "openshell";
  bool keep_on_shutdown = false;                               ///< leave sandboxes running when the gateway ends
  bool config_push = true;                                     ///< nudge supervisors at each committed change
  std::string policy_validation_failure_mode = "fail_closed";  ///< or "retain_last_valid"
};

/// Implemented by api/sandboxes. All calls are thread-safe.
class ControlPlane : public SandboxIdentities {
 public:
  /// Adds the handlers of the sandbox, config, policy, log, session, relay and exec RPCs. Once, before the server starts.
  virtual void add_handlers(Router& router) = 0;
  /// Recovers transitions and starts loops. Once, after the listeners are bound; a failing sandbox never stops the gateway.
  virtual void start() = 0;
  /// Stops sandboxes unless `keep_on_shutdown`, then ends the actors. At most `limit`. Blocks;
  /// called from main only.
  virtual absl::Status shutdown(std::chrono::seconds limit) = 0;
  /// Names of sandboxes that a provider is attached to: asked by DeleteProvider, in the transaction that deletes.
  virtual absl::StatusOr<std::vector<std::string>> sandboxes_with_provider(storage::Transaction& tx, const std::string& workspace,
                                                                           const std::string& provider) = 0;
  /// A provider changed (created, deleted, credentials set): attached sandboxes get their nudge.
  virtual void provider_changed(const std::string& workspace, const std::string& provider) = 0;
};

}  // namespace openshell::api
