// Internal to the channel: calls as gRPC serves them, and the server object of one connection.
#pragma once

#include <memory>

#include "actors/sandbox/channel_server.hpp"

namespace openshell::sandbox {

/// Serves one connection on a connected plaintext descriptor. Destruction cancels its calls and waits for them: never on a gRPC thread.
class ConnectionServer {
 public:
  virtual ~ConnectionServer() = default;
};

/// Takes `plaintext_fd` over. `verifier` and `events` outlive the server.
std::unique_ptr<ConnectionServer> serve_connection(ConnectionNumber connection, int plaintext_fd,
                                                   const boundary::SessionTokenVerifier& verifier, const ChannelServer::Events& events);

}  // namespace openshell::sandbox
