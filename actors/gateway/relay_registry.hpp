#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "actors/gateway/relay_pipe.hpp"
#include "actors/introspection/reporter.hpp"
#include "messages/gateway.hpp"

namespace openshell::gateway {

inline constexpr std::size_t kMaxPendingRelays = 256;  ///< of this gateway
inline constexpr std::size_t kMaxPendingRelaysPerSandbox = 32;
inline constexpr std::size_t kMaxRelayReason = 1024;  ///< bytes of a supervisor's reason that a caller sees

struct RelayRegistryState {
  static constexpr std::int64_t kClaim = 10;  ///< seconds a supervisor has to claim

  struct Pending {
    std::string sandbox_id, session_id;  // session: once RelayOpen went out
    caf::typed_response_promise<Handed<RelayEnd>> promise;
    std::int64_t until = 0;
  };
  struct Established {
    std::string sandbox_id, session_id;
    std::weak_ptr<RelayEnd> supervisor;
  };

  std::map<std::string, Pending> pending;  // first: CAF would take a state whose first member is a handle for one made from the actor
  SessionRegistry sessions;
  std::map<std::string, Established> established;
  std::function<std::string()> new_id;
  Reporter reporter;

  ActorSnapshot snapshot() const;
  inline static const char* name = "relay_registry";
};

RelayRegistry::behavior_type relay_registry(RelayRegistry::stateful_pointer<RelayRegistryState> self, SessionRegistry sessions,
                                            Directory directory, std::function<std::string()> new_id);

}  // namespace openshell::gateway
