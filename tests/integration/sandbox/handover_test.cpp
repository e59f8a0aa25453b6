// Decision 27, second carrier: the relay socket itself goes to the supervisor.
#include <fcntl.h>
#include <sys/socket.h>

#include <future>

#include "isolation/boundary/socket_passing.hpp"
#include "programs/supervisor/handover_line.hpp"
#include "tests/integration/sandbox/fixture.hpp"

namespace openshell::sandbox::test {
namespace {

using Passed = absl::StatusOr<isolation::FileDescriptor>;

std::string decision(boundary::OpenDecision what) {
  return boundary::encode_process_frame(boundary::Channel::tcp_decision, boundary::encode_open_decision(what));
}

bool send_all(int fd, std::string_view bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

std::string read_to_end(int fd) {
  std::string all;
  char bytes[256];
  for (ssize_t n = ::recv(fd, bytes, sizeof bytes, 0); n > 0; n = ::recv(fd, bytes, sizeof bytes, 0))
    all.append(bytes, static_cast<std::size_t>(n));
  return all;
}

TEST_F(SandboxProcess, IS_37_TheRelaySocketItselfIsHandedOver) {
  ASSERT_NO_FATAL_FAILURE(start());
  const auto line = supervisor::HandoverLine::start(descriptor);
  ASSERT_NE(line, nullptr);
  ASSERT_TRUE(eventually(10, [&] { return line->up(); }));
  for (int round = 0; round < 3; ++round) {
    const auto id = new_uuid();
    auto accept = client->open(boundary::AcceptNetwork{}, id);
    std::thread supervisor{[&] {
      ASSERT_TRUE(accept->response());
      std::promise<Passed> arrived;
      ASSERT_TRUE(line->expect(id, [&](Passed socket) { arrived.set_value(std::move(socket)); }));
      ASSERT_TRUE(accept->send(decision(boundary::OpenDecision::relay_handover)));
      auto socket = arrived.get_future().get();
      ASSERT_TRUE(socket.ok()) << socket.status();
      EXPECT_TRUE(boundary::check_relay_socket(socket->get()).ok());
      EXPECT_TRUE(accept->finish().ok());  // the call is over, the relay goes on
      const int flags = ::fcntl(socket->get(), F_GETFL);
      ::fcntl(socket->get(), F_SETFL, flags & ~O_NONBLOCK);
      EXPECT_TRUE(send_all(socket->get(), "hello\n"));
      ::shutdown(socket->get(), SHUT_WR);
      EXPECT_EQ(read_to_end(socket->get()), "ping\n");
    }};
    const auto result = exec("exec 3<>/dev/tcp/203.0.113.9/80; echo ping >&3; cat <&3");
    supervisor.join();
    EXPECT_EQ(result.out, "hello\n") << result.err;
  }
}

TEST_F(SandboxProcess, IS_37_WithoutALineAHandoverBreaksTheRelayAndNotTheSandbox) {
  ASSERT_NO_FATAL_FAILURE(start());
  auto accept = client->open(boundary::AcceptNetwork{});
  std::thread supervisor{[&] {
    ASSERT_TRUE(accept->response());
    ASSERT_TRUE(accept->send(decision(boundary::OpenDecision::relay_handover)));
    EXPECT_FALSE(accept->finish().ok());
  }};
  const auto result = exec("exec 3<>/dev/tcp/203.0.113.9/80; cat <&3 && echo whole");
  supervisor.join();
  EXPECT_EQ(result.out, "") << "a broken relay looked like one that ended";
  EXPECT_EQ(exec("true").status, (boundary::ExitStatus{false, 0}));
}

TEST_F(SandboxProcess, IS_37_TheLineComesBackWithTheNextSupervisorConnection) {
  ASSERT_NO_FATAL_FAILURE(start());
  auto first = supervisor::HandoverLine::start(descriptor);
  ASSERT_TRUE(eventually(10, [&] { return first->up(); }));
  first->stop();
  EXPECT_FALSE(first->expect(new_uuid(), [](Passed) {}));
  const auto second = supervisor::HandoverLine::start(descriptor);
  ASSERT_TRUE(eventually(10, [&] { return second->up(); }));
  auto foreign = descriptor;
  foreign.tls_client_certificate_pem = foreign.tls_trust_anchor_pem;  // not the supervisor's
  const auto stranger = supervisor::HandoverLine::start(foreign);
  EXPECT_FALSE(eventually(1, [&] { return stranger->up(); }));
  EXPECT_TRUE(second->up());
}

}  // namespace
}  // namespace openshell::sandbox::test
