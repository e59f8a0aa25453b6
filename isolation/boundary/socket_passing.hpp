// Relay sockets on their way from the sandbox runtime to the supervisor: one SCM_RIGHTS message each (unix(7)) over a Unix connection of
// its own, so that no byte of a relay crosses the channel. Source: IS-37, decision 27.
//
// The connection is made to the channel's own socket and authenticated by the same mutual TLS, with kHandoverAlpn instead of h2. When the
// handshake is over nothing more is encrypted: a connected Unix socket has two ends, and both have shown who they are.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "isolation/file_descriptor.hpp"

namespace openshell::boundary {

inline constexpr std::string_view kHandoverAlpn = "openshell-handover/1";  ///< RFC 7301 protocol name
inline constexpr std::size_t kTicketBytes = 36;                            ///< the request id of the accept_network call, a UUID

/// A socket that arrived, and the call it belongs to.
struct PassedSocket {
  std::string ticket;
  isolation::FileDescriptor socket;  ///< invalid: this process had no descriptor left for it
};

/// One message on `connection`; never blocks. INVALID_ARGUMENT: `ticket` has another length; UNAVAILABLE: nobody takes it, or the queue is
/// full. The sender keeps its own descriptor.
[[nodiscard]] absl::Status pass_socket(int connection, std::string_view ticket, int socket);

/// Waits for the next message. UNAVAILABLE: the peer is gone; INVALID_ARGUMENT: it sent something else, and the connection is of no further
/// use.
[[nodiscard]] absl::StatusOr<PassedSocket> receive_socket(int connection);

/// The sender is not trusted: a relay is a connected TCP socket and nothing else. FAILED_PRECONDITION says what it is instead.
[[nodiscard]] absl::Status check_relay_socket(int socket);

}  // namespace openshell::boundary
