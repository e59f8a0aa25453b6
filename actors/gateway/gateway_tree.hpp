// The supervision tree of the gateway: spawned, loaded from the store, and ended as a whole.
#pragma once

#include <absl/status/statusor.h>
#include <caf/actor_system.hpp>

#include <functional>
#include <memory>
#include <string>

#include "actors/gateway/compute_reconciler.hpp"
#include "actors/gateway/sandbox_entity.hpp"
#include "messages/gateway.hpp"

namespace openshell::gateway {

struct TreeOptions {
  storage::Store* store = nullptr;                          ///< outlives the tree
  const providers::CredentialStore* credentials = nullptr;  ///< null: provider environments are empty
  std::shared_ptr<drivers::ComputeDriver> driver;
  std::string driver_name;
  std::function<absl::StatusOr<drivers::LaunchAuthentication>(const records::SandboxRecord&)> mint;
  std::string failure_mode = "fail_closed";
  bool extension_authentication = false;
  bool threads = true;                  ///< false in virtual time
  std::function<Millis()> now;          ///< unset: the system's clock
  std::function<std::string()> new_id;  ///< unset: random UUIDs
  /// Called once, on an actor's thread, when an actor that the whole depends on died: the process should end in order.
  std::function<void(const std::string& which)> fatal;
};

/// Handles of the tree's actors, for handlers. All thread-safe.
struct TreeActors {
  Directory directory;
  SandboxBus bus;
  SessionRegistry sessions;
  RelayRegistry relays;
  ComputeReconciler compute;
  SandboxIndex index;
  GlobalConfiguration global;
  std::shared_ptr<IdentityTable> identities;
};

class GatewayTree {
 public:
  /// Spawns everything; nothing is loaded yet, every sandbox is unknown.
  GatewayTree(caf::actor_system& system, TreeOptions options);
  ~GatewayTree();
  GatewayTree(const GatewayTree&) = delete;
  GatewayTree& operator=(const GatewayTree&) = delete;

  /// Reads the store and starts recovery and the driver's watch. Blocks for the reading; not for recovery. A sandbox that does not decode
  /// is named in `warnings` and skipped.
  absl::Status load(std::vector<std::string>* warnings);
  /// The same in steps that a test in virtual time can drive: `view` and `all` as read from the store.
  void load(const GlobalView& view, std::shared_ptr<const StoredSandboxes> all);
  /// Orders all actors to end. Stopping sandboxes is the caller's affair, afterwards, so that nobody restarts them.
  void end();
  /// Waits until they have: after that no answer of the store or the driver reaches anybody. Blocks; never in virtual time.
  void join();

  [[nodiscard]] const TreeActors& actors() const { return actors_; }
  [[nodiscard]] caf::actor_system& system() const { return system_; }

 private:
  caf::actor_system& system_;
  TreeOptions options_;
  TreeActors actors_;
  caf::actor root_;
  TreeActors ending_;  // kept for join
};

}  // namespace openshell::gateway
