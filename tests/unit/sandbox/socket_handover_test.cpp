#include "actors/sandbox/socket_handover.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <system_error>

namespace openshell::sandbox {
namespace {

/// This end is the runtime's, the other the supervisor's.
std::pair<isolation::FileDescriptor, isolation::FileDescriptor> line() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {isolation::FileDescriptor{ends[0]}, isolation::FileDescriptor{ends[1]}};
}

// A supervisor that connects again before its old connection was seen to break: nobody is left to decide what the old one was asked.
TEST(SocketHandover, IS_37_WhatAReplacedLineWasAskedIsRefusedAndWhatTheNewOneWasAskedIsNot) {
  std::promise<std::uint64_t> refused;
  const auto handover = std::make_shared<SocketHandover>();
  handover->decide_with({[](std::uint64_t) { return absl::UnavailableError("no socket"); },
                         [&](std::uint64_t open, boundary::OpenDecision decision) {
                           EXPECT_EQ(decision, boundary::OpenDecision::mediation_unavailable);
                           refused.set_value(open);  // a second one would throw
                         }});
  auto [first, first_peer] = line();
  auto [second, second_peer] = line();
  handover->adopt(std::move(first));
  ASSERT_TRUE(handover->announce(1, {}));
  handover->adopt(std::move(second));
  auto open = refused.get_future();
  ASSERT_EQ(open.wait_for(std::chrono::seconds{10}), std::future_status::ready);
  EXPECT_EQ(open.get(), 1U);
  EXPECT_FALSE(handover->over(1));
  ASSERT_TRUE(handover->announce(2, {}));
  EXPECT_TRUE(handover->over(2)) << "the break of the first line took nothing of the second";
}

// At the limit of processes there is no thread for a line: it closes, and opens are asked over calls, which refuse when nobody answers.
TEST(SocketHandover, WithoutAThreadTheLineIsClosedAndTakesNoOpen) {
  const auto handover = std::make_shared<SocketHandover>([](const std::function<void()>&) {
    throw std::system_error{std::make_error_code(std::errc::resource_unavailable_try_again), "no thread"};
  });
  handover->decide_with({[](std::uint64_t) { return absl::UnavailableError("no socket"); }, [](std::uint64_t, boundary::OpenDecision) {}});
  auto [mine, peer] = line();
  handover->adopt(std::move(mine));
  EXPECT_FALSE(handover->announce(1, {}));
  EXPECT_FALSE(handover->pass("t", 0).ok());
  char byte = 0;
  EXPECT_EQ(::recv(peer.get(), &byte, 1, 0), 0) << "the supervisor sees the end of it";
}

TEST(SocketHandover, OpensAreNewsOnceUntilTheirFiguresAreSeen) {
  SocketHandover handover;
  EXPECT_TRUE(handover.is_news());
  EXPECT_FALSE(handover.is_news());
  handover.looked();
  EXPECT_TRUE(handover.is_news());
}

}  // namespace
}  // namespace openshell::sandbox
