// The line beside the channel: opens of the workload, their decisions, and relay sockets (SCM_RIGHTS, unix(7)) over a Unix connection of
// its own, so that no byte of a relay crosses the channel, and a connect waits for no HTTP/2. Source: IS-37.
//
// The connection is made to the channel's own socket and authenticated by the same mutual TLS, with kHandoverAlpn instead of h2. When the
// handshake is over nothing more is encrypted: a connected Unix socket has two ends, and both have shown who they are.
//
//   sandbox -> supervisor   open      a NetworkConnected response; the ticket names the open from here on
//   supervisor -> sandbox   decision  a decision frame, as over a call
//   sandbox -> supervisor   socket    of an open that was allowed with relay_handover: the relay socket, no payload
//   sandbox -> supervisor   over      the open is over: refused as decided (no payload), or without a socket (why)
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "isolation/file_descriptor.hpp"

namespace openshell::boundary {

inline constexpr std::string_view kHandoverAlpn = "openshell-handover/1";  ///< RFC 7301 protocol name
inline constexpr std::size_t kTicketBytes = 36;                            ///< a UUID, or the number of an open
inline constexpr std::size_t kMaxLinePayload = 65'536;                     ///< bytes

enum class LineKind : std::uint8_t { open = 'O', decision = 'D', socket = 'S', over = 'E' };

struct LineMessage {
  LineKind kind = LineKind::over;
  std::string ticket;
  std::string payload;
  isolation::FileDescriptor socket;  ///< LineKind::socket; invalid: this process had no descriptor left for it
};

/// Bytes that may wait in a line for its reader before a further open is turned away: what is left of the socket's buffer, several times as
/// much, is for decisions, sockets and ends of the opens that are under way, so that those always find room.
inline constexpr int kMaxWaitingOpens = 64 * 1024;

/// Makes the buffer of a new line as large as the host allows (net.core.wmem_max, socket(7)).
void widen_line(int connection);
/// True where an open would wait behind kMaxWaitingOpens.
[[nodiscard]] bool line_is_busy(int connection);

/// One message on `connection`; never blocks. `socket` -1: none; the sender keeps its own descriptor. INVALID_ARGUMENT: ticket or payload
/// have no such length, nothing was sent; UNAVAILABLE: nobody takes it, and the connection is of no further use.
[[nodiscard]] absl::Status send_line(int connection, LineKind kind, std::string_view ticket, std::string_view payload, int socket = -1);

/// Messages out of any split of their bytes. The peer is not trusted.
class LineDecoder {
 public:
  /// Sockets that came, in their order; an invalid one stands for one that was lost.
  void add_socket(isolation::FileDescriptor socket) { sockets_.push_back(std::move(socket)); }
  void append(std::string_view bytes) { buffer_.append(bytes); }
  /// nullopt: more bytes are needed. INVALID_ARGUMENT: this is no line, for good. A socket that no message awaits is an error too, so that
  /// a peer cannot make this process hold descriptors.
  absl::StatusOr<std::optional<LineMessage>> next();

 private:
  absl::StatusOr<std::optional<LineMessage>> more() const;

  std::string buffer_;
  std::deque<isolation::FileDescriptor> sockets_;
};

/// Reads once and gives the bytes to `decoder`; waits for them where the descriptor is blocking. UNAVAILABLE: the peer is gone.
[[nodiscard]] absl::Status receive_line(int connection, LineDecoder& decoder);

/// The sender is not trusted: a relay is a connected TCP socket and nothing else. FAILED_PRECONDITION says what it is instead.
[[nodiscard]] absl::Status check_relay_socket(int socket);

}  // namespace openshell::boundary
