#include "actors/sandbox/socket_handover.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <future>

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

}  // namespace
}  // namespace openshell::sandbox
