// Relay sockets over a Unix connection: what is passed, what is refused, and the sender that is not to be trusted.
#include "isolation/boundary/socket_passing.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

namespace openshell::boundary {
namespace {

using isolation::FileDescriptor;

const std::string kTicket = "0f8fad5b-d9cb-469f-a165-70867728950e";

std::pair<FileDescriptor, FileDescriptor> line() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {FileDescriptor{ends[0]}, FileDescriptor{ends[1]}};
}

struct Tcp {
  FileDescriptor listener, client, server;
};

Tcp tcp() {
  Tcp out{FileDescriptor{::socket(AF_INET, SOCK_STREAM, 0)}, FileDescriptor{::socket(AF_INET, SOCK_STREAM, 0)}, {}};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(out.listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(out.listener.get(), 1), 0);
  socklen_t size = sizeof address;
  ::getsockname(out.listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_EQ(::connect(out.client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  out.server.reset(::accept(out.listener.get(), nullptr, nullptr));
  return out;
}

absl::Status pass(const FileDescriptor& line, const FileDescriptor& socket, std::string_view ticket = kTicket) {
  return send_line(line.get(), LineKind::socket, ticket, "", socket.get());
}

/// The next message, or why there is none.
absl::StatusOr<LineMessage> receive(const FileDescriptor& line, LineDecoder& decoder) {
  while (true) {
    auto message = decoder.next();
    if (!message.ok()) return message.status();
    if (*message) return std::move(**message);
    if (auto status = receive_line(line.get(), decoder); !status.ok()) return status;
  }
}

TEST(SocketPassing, IS_37_AConnectedTcpSocketArrivesWithItsTicket) {
  auto [near, far] = line();
  LineDecoder decoder;
  auto pair = tcp();
  ASSERT_TRUE(pass(near, pair.server).ok());
  pair.server.reset();
  auto passed = receive(far, decoder);
  ASSERT_TRUE(passed.ok()) << passed.status();
  EXPECT_EQ(passed->kind, LineKind::socket);
  EXPECT_EQ(passed->ticket, kTicket);
  EXPECT_TRUE(check_relay_socket(passed->socket.get()).ok());
  EXPECT_NE(::fcntl(passed->socket.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::send(pair.client.get(), "x", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(::recv(passed->socket.get(), &byte, 1, 0), 1);
  // One whose peer has gone meanwhile is still a relay: its end is to be seen.
  pair.client.reset();
  EXPECT_EQ(::recv(passed->socket.get(), &byte, 1, 0), 0);
  EXPECT_TRUE(check_relay_socket(passed->socket.get()).ok());
}

TEST(SocketPassing, IS_37_EachSocketKeepsItsTicketAmongOtherMessages) {
  auto [near, far] = line();
  LineDecoder decoder;
  auto pair = tcp();
  std::string other = kTicket;
  other[0] = 'f';
  ASSERT_TRUE(send_line(near.get(), LineKind::open, kTicket, "one").ok());
  ASSERT_TRUE(pass(near, pair.server).ok());
  ASSERT_TRUE(send_line(near.get(), LineKind::over, kTicket, "").ok());
  ASSERT_TRUE(pass(near, pair.client, other).ok());
  const auto client_name = pair.client.get();
  EXPECT_EQ(receive(far, decoder)->payload, "one");
  EXPECT_EQ(receive(far, decoder)->ticket, kTicket);
  EXPECT_EQ(receive(far, decoder)->kind, LineKind::over);
  auto last = receive(far, decoder);
  EXPECT_EQ(last->ticket, other);
  struct stat sent {
  }, got{};
  ASSERT_EQ(::fstat(client_name, &sent), 0);
  ASSERT_EQ(::fstat(last->socket.get(), &got), 0);
  EXPECT_EQ(sent.st_ino, got.st_ino);
  near.reset();
  EXPECT_TRUE(absl::IsUnavailable(receive(far, decoder).status()));
}

TEST(SocketPassing, IS_37_WhatIsNoConnectedTcpSocketIsRefused) {
  auto pair = tcp();
  EXPECT_FALSE(check_relay_socket(pair.listener.get()).ok());
  EXPECT_FALSE(check_relay_socket(FileDescriptor{::socket(AF_INET, SOCK_DGRAM, 0)}.get()).ok());
  EXPECT_FALSE(check_relay_socket(FileDescriptor{::socket(AF_UNIX, SOCK_STREAM, 0)}.get()).ok());
  EXPECT_FALSE(check_relay_socket(FileDescriptor{::open("/dev/null", O_RDWR)}.get()).ok());
  EXPECT_FALSE(check_relay_socket(-1).ok());
}

TEST(SocketPassing, IS_37_AHostileSenderBreaksTheLineAndNothingElse) {
  auto [near, far] = line();
  EXPECT_TRUE(absl::IsInvalidArgument(send_line(near.get(), LineKind::over, "short", "")));
  EXPECT_TRUE(absl::IsInvalidArgument(send_line(near.get(), LineKind::over, kTicket, std::string(kMaxLinePayload + 1, 'x'))));
  ASSERT_TRUE(send_line(near.get(), LineKind::over, kTicket, std::string(kMaxLinePayload, 'x')).ok());
  LineDecoder decoder;
  EXPECT_EQ(receive(far, decoder)->payload.size(), kMaxLinePayload);
  LineDecoder without;
  without.append("S" + kTicket + std::string(4, '\0'));  // a socket that did not come
  EXPECT_TRUE(absl::IsInvalidArgument(without.next().status()));
  LineDecoder unknown;
  unknown.append("X" + kTicket + std::string(4, '\0'));
  EXPECT_TRUE(absl::IsInvalidArgument(unknown.next().status()));
  LineDecoder endless;
  endless.append("O" + kTicket + std::string("\x7f\xff\xff\xff", 4));
  EXPECT_TRUE(absl::IsInvalidArgument(endless.next().status()));
}

// A peer that passes descriptors which nobody awaits makes this process hold none of them.
TEST(SocketPassing, IS_37_ASocketThatNoMessageAnnouncesBreaksTheLine) {
  auto pair = tcp();
  {
    auto [near, far] = line();
    ASSERT_TRUE(send_line(near.get(), LineKind::over, kTicket, "", pair.server.get()).ok());
    LineDecoder decoder;
    ASSERT_TRUE(receive_line(far.get(), decoder).ok());
    EXPECT_TRUE(decoder.next().ok());
    EXPECT_TRUE(absl::IsInvalidArgument(decoder.next().status()));
  }
  auto [near, far] = line();
  std::string bytes = "S" + kTicket + std::string(4, '\0');
  const std::array<int, 2> two{pair.server.get(), pair.client.get()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof two)> control{};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof two);
  std::memcpy(CMSG_DATA(header), two.data(), sizeof two);
  ASSERT_GT(::sendmsg(near.get(), &message, 0), 0);
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, std::filesystem::directory_iterator{});
  };
  const auto before = open_descriptors();
  {
    LineDecoder decoder;
    EXPECT_TRUE(absl::IsUnavailable(receive_line(far.get(), decoder)));
  }
  EXPECT_EQ(open_descriptors(), before) << "a descriptor was left open";
}

// While its reader is slow a line takes no further opens, and still all that belongs to those under way.
TEST(SocketPassing, IS_37_ABusyLineKeepsRoomForWhatIsUnderWay) {
  auto [near, far] = line();
  auto pair = tcp();
  widen_line(near.get());
  EXPECT_FALSE(line_is_busy(near.get()));
  int opens = 0;
  for (; opens < 1000 && !line_is_busy(near.get()); ++opens) {
    ASSERT_TRUE(send_line(near.get(), LineKind::open, kTicket, std::string(2000, 'x')).ok());
  }
  EXPECT_GT(opens, 8);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(pass(near, pair.server).ok()) << i;
}

// A reader that does not read: the sender is told at once, and never waits.
TEST(SocketPassing, IS_37_AFullQueueIsAnErrorAtOnce) {
  auto [near, far] = line();
  auto pair = tcp();
  absl::Status last;
  int passed = 0;
  while (passed < 100'000 && (last = pass(near, pair.server)).ok()) ++passed;
  EXPECT_GT(passed, 16);
  EXPECT_TRUE(absl::IsUnavailable(last)) << last;
}

// B08: no room in the own table. The socket is lost, the line and the next socket are not.
TEST(SocketPassing, B08_WithoutADescriptorLeftTheTicketStillArrives) {
  auto [near, far] = line();
  auto pair = tcp();
  ASSERT_TRUE(pass(near, pair.server).ok());
  ASSERT_TRUE(pass(near, pair.server).ok());
  const FileDescriptor highest{::dup(pair.client.get())};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{static_cast<rlim_t>(highest.get()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  LineDecoder decoder;
  const auto full = receive(far, decoder);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->ticket, kTicket);
  EXPECT_FALSE(full->socket.valid());
  EXPECT_TRUE(receive(far, decoder)->socket.valid());
}

}  // namespace
}  // namespace openshell::boundary
