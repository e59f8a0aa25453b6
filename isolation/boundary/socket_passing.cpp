#include "isolation/boundary/socket_passing.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace openshell::boundary {
namespace {

constexpr std::size_t kHeaderBytes = 1 + kTicketBytes + 4;  // kind, ticket, length

union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

int option(int socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, level, name, &value, &size) == 0 ? value : -1;
}

}  // namespace

void widen_line(int connection) {
  const int wanted = 1 << 20;
  ::setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
}

bool line_is_busy(int connection) {
  int waiting = 0;
  return ::ioctl(connection, SIOCOUTQ, &waiting) == 0 && waiting > kMaxWaitingOpens;
}

absl::Status send_line(int connection, LineKind kind, std::string_view ticket, std::string_view payload, int socket) {
  if (ticket.size() != kTicketBytes) return absl::InvalidArgumentError("a ticket of the line has 36 bytes");
  if (payload.size() > kMaxLinePayload) return absl::InvalidArgumentError("a payload of the line is too long");
  std::string bytes;
  bytes.reserve(kHeaderBytes + payload.size());
  bytes += static_cast<char>(kind);
  bytes += ticket;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(payload.size() >> shift & 0xff);
  bytes += payload;
  Control control{};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (socket >= 0) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof socket);
    std::memcpy(CMSG_DATA(header), &socket, sizeof socket);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("the line does not take a message: {}", sent < 0 ? std::strerror(errno) : "short write"));
}

absl::StatusOr<std::optional<LineMessage>> LineDecoder::more() const {
  // The kernel ends a read behind the message that carries a descriptor: one may be waited with, for the rest of its message.
  if (sockets_.size() > 1 || (buffer_.empty() && !sockets_.empty()))
    return absl::InvalidArgumentError("the line carried a socket that no message announced");
  return std::nullopt;
}

absl::StatusOr<std::optional<LineMessage>> LineDecoder::next() {
  if (buffer_.size() < kHeaderBytes) return more();
  LineMessage out;
  out.kind = static_cast<LineKind>(buffer_[0]);
  switch (out.kind) {
    case LineKind::open:
    case LineKind::decision:
    case LineKind::socket:
    case LineKind::over:
      break;
    default:
      return absl::InvalidArgumentError("the line carried an unknown message");
  }
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(buffer_[1 + kTicketBytes + i]);
  if (length > kMaxLinePayload) return absl::InvalidArgumentError("the line carried a message that is too long");
  if (buffer_.size() < kHeaderBytes + length) return more();
  out.ticket = buffer_.substr(1, kTicketBytes);
  out.payload = buffer_.substr(kHeaderBytes, length);
  buffer_.erase(0, kHeaderBytes + length);
  const bool socket = out.kind == LineKind::socket;
  if (socket && sockets_.empty()) return absl::InvalidArgumentError("the line announced a socket that did not come");
  if (socket) {
    out.socket = std::move(sockets_.front());
    sockets_.pop_front();
  }
  return out;
}

absl::Status receive_line(int connection, LineDecoder& decoder) {
  std::array<char, 16'384> bytes;
  Control control{};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));  // CMSG_SPACE has room for two
  ssize_t count = 0;
  do {
    count = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return absl::OkStatus();
  if (count == 0) return absl::UnavailableError("the line ended");
  if (count < 0) return absl::UnavailableError(fmt::format("the line failed: {}", std::strerror(errno)));
  bool came = false;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    decoder.add_socket(isolation::FileDescriptor{fd});
    came = true;
  }
  // More than one in a message, which no honest peer sends, or no room in our own table: then its place is kept.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    if (came) return absl::UnavailableError("the line carried more than one socket in a message");
    decoder.add_socket({});
  }
  decoder.append({bytes.data(), static_cast<std::size_t>(count)});
  return absl::OkStatus();
}

absl::Status check_relay_socket(int socket) {
  const auto refuse = [](const char* what) { return absl::FailedPreconditionError(what); };
  const int domain = option(socket, SOL_SOCKET, SO_DOMAIN);
  if (domain != AF_INET && domain != AF_INET6) return refuse("the descriptor that was passed is no internet socket");
  if (option(socket, SOL_SOCKET, SO_TYPE) != SOCK_STREAM || option(socket, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP)
    return refuse("the descriptor that was passed is no TCP socket");
  if (option(socket, SOL_SOCKET, SO_ACCEPTCONN) != 0) return refuse("the socket that was passed listens");
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return refuse("the socket that was passed has no TCP state");
  // The workload may have ended its direction, or everything, by now.
  if (info.tcpi_state == TCP_SYN_SENT || info.tcpi_state == TCP_SYN_RECV || info.tcpi_state == TCP_LISTEN)
    return refuse("the socket that was passed is not connected");
  return absl::OkStatus();
}

}  // namespace openshell::boundary
