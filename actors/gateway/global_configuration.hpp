#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <memory>
#include <string>

#include "actors/gateway/gate.hpp"
#include "actors/gateway/policy_history.hpp"
#include "actors/introspection/reporter.hpp"
#include "messages/gateway.hpp"
#include "storage/store.hpp"

namespace openshell::gateway {

struct GlobalConfigurationState {
  storage::Store* store = nullptr;
  SandboxIndex index;
  std::function<Millis()> now;
  std::function<std::string()> new_id;
  Reporter reporter;
  Stored<records::SettingsRecord> settings;
  bool stored = false;
  PolicyHistory policies;
  Gate writes;

  [[nodiscard]] GlobalView view() const;
  ActorSnapshot snapshot() const;
  inline static const char* name = "global_configuration";
};

GlobalConfiguration::behavior_type global_configuration(GlobalConfiguration::stateful_pointer<GlobalConfigurationState> self,
                                                        storage::Store* store, SandboxIndex index, Directory directory,
                                                        std::function<Millis()> now, std::function<std::string()> new_id);

}  // namespace openshell::gateway
