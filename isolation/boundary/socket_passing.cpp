#include "isolation/boundary/socket_passing.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace openshell::boundary {
namespace {

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

absl::Status pass_socket(int connection, std::string_view ticket, int socket) {
  if (ticket.size() != kTicketBytes) return absl::InvalidArgumentError("a hand-over ticket has 36 bytes");
  Control control{};
  iovec part{const_cast<char*>(ticket.data()), ticket.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof socket);
  std::memcpy(CMSG_DATA(header), &socket, sizeof socket);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(kTicketBytes)) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("a relay socket was not taken: {}", sent < 0 ? std::strerror(errno) : "short write"));
}

absl::StatusOr<PassedSocket> receive_socket(int connection) {
  Control control{};
  PassedSocket out;
  out.ticket.resize(kTicketBytes);
  iovec part{out.ticket.data(), out.ticket.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count == 0) return absl::UnavailableError("the hand-over connection ended");
  if (count < 0) return absl::UnavailableError(fmt::format("the hand-over connection failed: {}", std::strerror(errno)));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    out.socket.reset(fd);
  }
  const bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;  // more than one, or no room in our own table
  if (count != static_cast<ssize_t>(kTicketBytes) || (truncated && out.socket.valid()) || (!truncated && !out.socket.valid())) {
    return absl::InvalidArgumentError("the hand-over connection carried something else than one socket");
  }
  return out;
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
