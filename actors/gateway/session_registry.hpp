#pragma once

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "actors/gateway/session_table.hpp"
#include "actors/introspection/reporter.hpp"
#include "messages/operator.hpp"

namespace openshell::gateway {

struct SessionRegistryState {
  static constexpr std::chrono::seconds kPatience{15};  ///< a relay waits so long for a session

  struct Waiter {
    std::string sandbox_id;
    std::shared_ptr<const openshell::v1::GatewayMessage> message;
    caf::typed_response_promise<Reply<SessionGrant>> promise;
    SessionTable::Seconds until = 0;
  };

  SessionTable table;
  std::list<Waiter> waiters;
  std::function<std::string()> new_id;
  Reporter reporter;
  std::uint64_t nudges = 0, unanswered = 0;

  ActorSnapshot snapshot() const;
  inline static const char* name = "session_registry";
};

SessionRegistryView::behavior_type session_registry(SessionRegistryView::stateful_pointer<SessionRegistryState> self, Directory directory,
                                                    std::function<std::string()> new_id);

}  // namespace openshell::gateway
