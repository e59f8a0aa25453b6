#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "actors/gateway/sandbox_entity.hpp"
#include "actors/introspection/reporter.hpp"
#include "actors/supervision/restart_rule.hpp"
#include "messages/gateway.hpp"

namespace openshell::gateway {

struct IndexOptions {
  std::string driver_name;
  std::string default_image;
  std::function<std::uint32_t(std::uint32_t)> random;  ///< 0..n-1, for generated names
};

struct SandboxIndexState {
  struct Entry {
    SandboxEntity entity;
    std::string workspace, name;
    std::shared_ptr<const pb::Sandbox> shown;  ///< null while it is being created
    Millis changed = 0;
  };
  using Order = std::tuple<Millis, std::string, std::string, std::string>;  ///< creation, name, workspace, id

  std::shared_ptr<const EntityDeps> deps;
  SandboxBus bus;
  IndexOptions options;
  Reporter reporter;
  GlobalView global;
  std::map<std::string, Entry> by_id;
  std::map<std::pair<std::string, std::string>, std::string> by_name;  // (workspace, name) -> id
  std::map<caf::actor_addr, std::string> leaving;                      // deleted, and not ended yet
  std::map<std::string, RestartRule> deaths;                           // of entities, by id
  bool ending = false;
  std::set<Order> order;  // of those that are shown

  ActorSnapshot snapshot() const;
  inline static const char* name = "sandbox_index";
};

SandboxIndex::behavior_type sandbox_index(SandboxIndex::stateful_pointer<SandboxIndexState> self, std::shared_ptr<const EntityDeps> deps,
                                          SandboxBus bus, IndexOptions options);

}  // namespace openshell::gateway
