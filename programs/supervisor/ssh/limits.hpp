#pragma once

#include <chrono>
#include <cstddef>

namespace openshell::supervisor {

/// Every bound of the SSH server. A client that passes one loses its request, its channel or its connection, never the server.
struct SshLimits {
  std::size_t connections = 24;  ///< at once; the gateway allows 20 of users for a sandbox
  std::size_t sessions = 10;     ///< channels of one connection that run something
  std::size_t forwards = 64;     ///< direct-tcpip channels of one connection
  int auth_attempts = 6;         ///< refused ones; the connection then ends
  std::size_t command_bytes = 262'144;
  std::size_t channel_input = 2 * 1024 * 1024;      ///< received on one channel and not taken; libssh's window stays below it
  std::size_t connection_input = 16 * 1024 * 1024;  ///< the same over all channels of a connection
  std::size_t unread_output = 1024 * 1024;          ///< answers that a client does not read
  std::chrono::milliseconds handshake{20'000};      ///< from accept to authenticated
  std::chrono::milliseconds auth_delay{1'000};      ///< before a refusal is answered
  std::chrono::milliseconds keepalive{15'000};      ///< without a byte from the client: it is asked whether it is there
  std::chrono::milliseconds dead{60'000};           ///< without a byte from the client: the connection ends
  std::chrono::milliseconds linger{10'000};         ///< a forward whose client has closed: what was sent is delivered, and the target ends
  std::chrono::milliseconds stuck{2'000};           ///< one turn of a connection's thread; longer is a client that exploits the library
};

}  // namespace openshell::supervisor
