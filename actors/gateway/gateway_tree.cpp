#include "actors/gateway/gateway_tree.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <random>

#include "actors/gateway/global_configuration.hpp"
#include "actors/gateway/relay_registry.hpp"
#include "actors/gateway/sandbox_bus.hpp"
#include "actors/gateway/sandbox_index.hpp"
#include "actors/gateway/session_registry.hpp"
#include "actors/introspection/directory.hpp"
#include "actors/introspection/reporter.hpp"
#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

Millis wall_clock() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::uint32_t random_below(std::uint32_t limit) {
  static thread_local std::mt19937 engine{std::random_device{}()};
  return std::uniform_int_distribution<std::uint32_t>{0, limit - 1}(engine);
}

/// Watches the children. What any of them knows is rebuilt from the store at the start of the process, so a death ends the process in
/// order, and init starts it again; an entity's death is its index's business.
caf::behavior root(caf::event_based_actor* self, std::map<std::string, caf::actor> children, std::function<void(const std::string&)> fatal,
                   const Directory& known) {
  for (const auto& [name, child] : children) self->monitor(child);
  self->set_down_handler([=](caf::down_msg& down) {
    if (!down.reason || down.reason == caf::exit_reason::user_shutdown) return;
    for (const auto& [name, child] : children) {
      if (child.address() == down.source && fatal) fatal(name);
    }
  });
  self->set_exit_handler([=](caf::exit_msg& exit) {
    for (const auto& [name, child] : children) self->send_exit(child, caf::exit_reason::user_shutdown);
    self->quit(exit.reason);
  });
  auto reporter = std::make_shared<Reporter>(known, "gateway_root", "gateway_root", "");
  const auto snapshot = [reporter, count = children.size()] {
    ActorSnapshot out;
    out.summary = cat(count, " children");
    return reporter->complete(out);
  };
  reporter->touch(self, snapshot);
  for (const auto& [name, child] : children) {
    if (name != "directory") announce(known, name, "gateway_root");
  }
  return {[snapshot](introspect_atom) { return snapshot(); }};
}

}  // namespace

GatewayTree::GatewayTree(caf::actor_system& system, TreeOptions options) : system_{system}, options_{std::move(options)} {
  if (!options_.now) options_.now = wall_clock;
  if (!options_.new_id) options_.new_id = storage::new_uuid;
  auto& a = actors_;
  a.identities = std::make_shared<IdentityTable>();
  a.directory = system.spawn(directory);
  a.bus = system.spawn(sandbox_bus, a.directory, options_.now());
  a.sessions = system.spawn(session_registry, a.directory, options_.new_id);
  a.relays = system.spawn(relay_registry, a.sessions, a.directory, options_.new_id);
  ReconcilerOptions reconciler;
  reconciler.threads = options_.threads;
  reconciler.now = options_.now;
  a.compute = system.spawn(compute_reconciler, options_.driver, a.bus, a.directory, reconciler);
  auto deps = std::make_shared<EntityDeps>();
  deps->store = options_.store;
  deps->credentials = options_.credentials;
  deps->sessions = a.sessions;
  deps->compute = a.compute;
  deps->identities = a.identities;
  deps->directory = a.directory;
  deps->now = options_.now;
  deps->new_id = options_.new_id;
  deps->mint = options_.mint;
  deps->failure_mode = options_.failure_mode;
  deps->extension_authentication = options_.extension_authentication;
  IndexOptions index;
  index.driver_name = options_.driver_name;
  index.default_image = options_.driver->capabilities().default_image;
  index.random = random_below;
  a.index = system.spawn(sandbox_index, std::shared_ptr<const EntityDeps>{deps}, a.bus, index);
  a.global = system.spawn(global_configuration, options_.store, a.index, a.directory, options_.now, options_.new_id);
  root_ = system.spawn(root,
                       std::map<std::string, caf::actor>{{"directory", caf::actor_cast<caf::actor>(a.directory)},
                                                         {"sandbox_bus", caf::actor_cast<caf::actor>(a.bus)},
                                                         {"session_registry", caf::actor_cast<caf::actor>(a.sessions)},
                                                         {"relay_registry", caf::actor_cast<caf::actor>(a.relays)},
                                                         {"compute_reconciler", caf::actor_cast<caf::actor>(a.compute)},
                                                         {"sandbox_index", caf::actor_cast<caf::actor>(a.index)},
                                                         {"global_configuration", caf::actor_cast<caf::actor>(a.global)}},
                       options_.fatal, a.directory);
}

GatewayTree::~GatewayTree() { end(); }

absl::Status GatewayTree::load(std::vector<std::string>* warnings) {
  StoredSandboxes all;
  auto read = options_.store->read_and_wait([&](storage::Transaction& tx) {
    auto loaded = load_all(tx);
    if (loaded.ok()) all = std::move(*loaded);
    return loaded.status();
  });
  if (!read.ok()) return read;
  if (warnings != nullptr) *warnings = all.unreadable;
  absl::StatusOr<std::shared_ptr<const GlobalView>> view = absl::UnavailableError("no answer of global_configuration");
  caf::scoped_actor asker{system_};
  asker->request(actors_.global, caf::infinite, load_atom::value)
      .receive([&](const Reply<GlobalView>& reply) { view = reply.value; },
               [&](const caf::error& error) { view = absl::InternalError(system_.render(error)); });
  if (!view.ok()) return view.status();
  load(**view, std::make_shared<const StoredSandboxes>(std::move(all)));
  return absl::OkStatus();
}

void GatewayTree::load(const GlobalView& view, std::shared_ptr<const StoredSandboxes> all) {
  // One sender and one receiver each: the order of these is the order in which they are handled.
  caf::anon_send(actors_.index, changed_atom::value, view);
  caf::anon_send(actors_.index, load_atom::value, std::move(all));
  caf::anon_send(actors_.compute, add_atom::value, actors_.index);
}

void GatewayTree::end() {
  if (!root_) return;
  caf::anon_send_exit(root_, caf::exit_reason::user_shutdown);
  root_ = nullptr;
  ending_ = std::exchange(actors_, {});
}

void GatewayTree::join() {
  if (!ending_.index) return;
  caf::scoped_actor waiter{system_};
  waiter->wait_for(ending_.index, ending_.global, ending_.compute, ending_.relays, ending_.sessions, ending_.bus, ending_.directory);
  ending_ = {};
}

}  // namespace openshell::gateway
