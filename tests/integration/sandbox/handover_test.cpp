// The relay socket itself goes to the supervisor.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <mutex>
#include <thread>
#include <vector>

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

/// What the engine's I/O thread does in the supervisor.
void read_on_a_thread(int fd, absl::AnyInvocable<bool(int)> readable) {
  isolation::FileDescriptor copy{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
  std::thread{[copy = std::move(copy), readable = std::move(readable)]() mutable {
    pollfd entry{copy.get(), POLLIN, 0};
    while (::poll(&entry, 1, -1) > 0 && readable(copy.get())) {
    }
  }}.detach();
}

/// Takes opens off the line and gives each one decision.
struct Decider {
  std::mutex mutex;
  std::vector<boundary::NetworkConnected> opens;
  std::vector<absl::StatusOr<std::string>> ends;
  std::promise<Passed> socket;
  std::weak_ptr<supervisor::HandoverLine> line;
  boundary::OpenDecision answer = boundary::OpenDecision::relay_handover;

  void opened(const std::string& ticket, boundary::NetworkConnected open, const std::shared_ptr<egress::ByteStream>& call) {
    const auto alive = line.lock();
    if (answer == boundary::OpenDecision::relay_handover) {
      alive->expect(ticket, [this](Passed passed) { socket.set_value(std::move(passed)); });
    }
    call->write(decision(answer), [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    call->read([this, call](absl::StatusOr<std::string> end) {
      const std::lock_guard lock{mutex};
      ends.push_back(std::move(end));
    });
    const std::lock_guard lock{mutex};
    opens.push_back(std::move(open));
  }
};

std::shared_ptr<supervisor::HandoverLine> start_line(const boundary::Descriptor& descriptor, Decider& decider) {
  auto line = supervisor::HandoverLine::make(
      descriptor, read_on_a_thread,
      [&decider](const std::string& ticket, boundary::NetworkConnected open, const std::shared_ptr<egress::ByteStream>& call) {
        decider.opened(ticket, std::move(open), call);
      });
  decider.line = line;
  line->start();
  return line;
}

TEST_F(SandboxProcess, IS_37_TheRelaySocketItselfIsHandedOver) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (int round = 0; round < 3; ++round) {
    Decider decider;
    const auto line = start_line(descriptor, decider);
    ASSERT_TRUE(eventually(10, [&] { return line->up(); }));
    std::thread supervisor{[&] {
      auto socket = decider.socket.get_future().get();
      ASSERT_TRUE(socket.ok()) << socket.status();
      EXPECT_TRUE(boundary::check_relay_socket(socket->get()).ok());
      const int flags = ::fcntl(socket->get(), F_GETFL);
      ::fcntl(socket->get(), F_SETFL, flags & ~O_NONBLOCK);
      EXPECT_TRUE(send_all(socket->get(), "hello\n"));
      ::shutdown(socket->get(), SHUT_WR);
      EXPECT_EQ(read_to_end(socket->get()), "ping\n");
    }};
    const auto result = exec("exec 3<>/dev/tcp/203.0.113.9/80; echo ping >&3; cat <&3");
    supervisor.join();
    EXPECT_EQ(result.out, "hello\n") << result.err;
    line->stop();
    ASSERT_EQ(decider.opens.size(), 1U);
    EXPECT_EQ(decider.opens[0].destination, "203.0.113.9:80");
    EXPECT_NE(std::get_if<boundary::ResolvedIdentity>(&decider.opens[0].identity), nullptr);
    ASSERT_EQ(decider.ends.size(), 1U);
    EXPECT_TRUE(decider.ends[0].ok());
  }
}

TEST_F(SandboxProcess, IS_37_ARefusalOverTheLineIsItsErrno) {
  ASSERT_NO_FATAL_FAILURE(start());
  Decider decider;
  decider.answer = boundary::OpenDecision::policy_denied;
  const auto line = start_line(descriptor, decider);
  ASSERT_TRUE(eventually(10, [&] { return line->up(); }));
  const auto result = exec("exec 3<>/dev/tcp/203.0.113.9/81");
  EXPECT_NE(result.err.find("Permission denied"), std::string::npos) << result.err;
  EXPECT_TRUE(eventually(5, [&] {
    const std::lock_guard lock{decider.mutex};
    return decider.ends.size() == 1 && decider.ends[0].ok();
  }));
  line->stop();
}

// What was asked over a line that breaks is refused at once, and the next open goes the other way.
TEST_F(SandboxProcess, IS_37_OpensOfABrokenLineEndAndCallsTakeOver) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::promise<void> asked;
  auto line = supervisor::HandoverLine::make(
      descriptor, read_on_a_thread,
      [&](const std::string&, const boundary::NetworkConnected&, const std::shared_ptr<egress::ByteStream>&) { asked.set_value(); });
  line->start();
  ASSERT_TRUE(eventually(10, [&] { return line->up(); }));
  std::thread breaker{[&] {
    asked.get_future().wait();
    line->stop();
  }};
  auto result = exec("exec 3<>/dev/tcp/203.0.113.9/80");
  breaker.join();
  EXPECT_NE(result.status, (boundary::ExitStatus{false, 0})) << "nobody allowed it";
  auto accept = client->open(boundary::AcceptNetwork{});
  std::thread supervisor{[&] {
    ASSERT_TRUE(accept->response());
    accept->send(decision(boundary::OpenDecision::policy_denied));
    accept->finish();
  }};
  result = exec("exec 3<>/dev/tcp/203.0.113.9/81");
  supervisor.join();
  EXPECT_NE(result.err.find("Permission denied"), std::string::npos) << result.err;
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

TEST_F(SandboxProcess, IS_37_AStrangerGetsNoLine) {
  ASSERT_NO_FATAL_FAILURE(start());
  auto foreign = descriptor;
  foreign.tls_client_certificate_pem = foreign.tls_trust_anchor_pem;  // not the supervisor's
  const auto stranger = supervisor::HandoverLine::make(foreign, read_on_a_thread, nullptr);
  stranger->start();
  EXPECT_FALSE(eventually(1, [&] { return stranger->up(); }));
}

}  // namespace
}  // namespace openshell::sandbox::test
