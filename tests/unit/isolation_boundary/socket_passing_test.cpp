// Relay sockets over a Unix connection: what is passed, what is refused, and the sender that is not to be trusted.
#include "isolation/boundary/socket_passing.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
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

TEST(SocketPassing, IS_37_AConnectedTcpSocketArrivesWithItsTicket) {
  auto [near, far] = line();
  auto pair = tcp();
  ASSERT_TRUE(pass_socket(near.get(), kTicket, pair.server.get()).ok());
  pair.server.reset();
  auto passed = receive_socket(far.get());
  ASSERT_TRUE(passed.ok()) << passed.status();
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

TEST(SocketPassing, IS_37_MessagesAreNeverMixed) {
  auto [near, far] = line();
  auto pair = tcp();
  std::string other = kTicket;
  other[0] = 'f';
  ASSERT_TRUE(pass_socket(near.get(), kTicket, pair.server.get()).ok());
  ASSERT_TRUE(pass_socket(near.get(), other, pair.client.get()).ok());
  EXPECT_EQ(receive_socket(far.get())->ticket, kTicket);
  EXPECT_EQ(receive_socket(far.get())->ticket, other);
  near.reset();
  EXPECT_TRUE(absl::IsUnavailable(receive_socket(far.get()).status()));
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
  EXPECT_TRUE(absl::IsInvalidArgument(pass_socket(near.get(), "short", 0)));
  ASSERT_EQ(::send(near.get(), kTicket.data(), kTicket.size(), 0), static_cast<ssize_t>(kTicket.size()));  // no descriptor
  EXPECT_TRUE(absl::IsInvalidArgument(receive_socket(far.get()).status()));
  ASSERT_EQ(::send(near.get(), "abc", 3, 0), 3);  // no ticket
  EXPECT_TRUE(absl::IsInvalidArgument(receive_socket(far.get()).status()));
}

// A reader that does not read: the sender is told at once, and never waits.
TEST(SocketPassing, IS_37_AFullQueueIsAnErrorAtOnce) {
  auto [near, far] = line();
  auto pair = tcp();
  absl::Status last;
  int passed = 0;
  while (passed < 100'000 && (last = pass_socket(near.get(), kTicket, pair.server.get())).ok()) ++passed;
  EXPECT_GT(passed, 16);
  EXPECT_TRUE(absl::IsUnavailable(last)) << last;
}

// B08: no room in the own table. The socket is lost, the line and the next socket are not.
TEST(SocketPassing, B08_WithoutADescriptorLeftTheTicketStillArrives) {
  auto [near, far] = line();
  auto pair = tcp();
  ASSERT_TRUE(pass_socket(near.get(), kTicket, pair.server.get()).ok());
  ASSERT_TRUE(pass_socket(near.get(), kTicket, pair.server.get()).ok());
  const FileDescriptor highest{::dup(pair.client.get())};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{static_cast<rlim_t>(highest.get()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto full = receive_socket(far.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->ticket, kTicket);
  EXPECT_FALSE(full->socket.valid());
  EXPECT_TRUE(receive_socket(far.get())->socket.valid());
}

}  // namespace
}  // namespace openshell::boundary
