#pragma once

#include <caf/stateful_actor.hpp>

#include <memory>

#include "messages/supervisor.hpp"

namespace openshell::api {

class GatewayConnection;

struct GatewayClientState {
  std::shared_ptr<GatewayConnection> connection;
  std::vector<caf::typed_response_promise<void>> waiting_for_renewal;
  std::uint64_t timer = 0;  // only the newest renewal timer counts
  inline static const char* name = "gateway_client";
};

/// The actor that turns messages into RPCs. It renews the tokens by itself, at 80 % of their life and 10 s after a failure.
supervisor::GatewayClient::behavior_type gateway_client(supervisor::GatewayClient::stateful_pointer<GatewayClientState> self,
                                                        std::shared_ptr<GatewayConnection> connection);

}  // namespace openshell::api
