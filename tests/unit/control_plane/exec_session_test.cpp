// The gateway's end of one exec against a scripted supervisor's end of the relay.
#include "api/sandboxes/exec_session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec.pb.h"
#include "openshell.pb.h"

namespace openshell::api {
namespace {

using namespace std::chrono_literals;
namespace wire = openshell::internal::exec::v1;

class Exec : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = gateway::make_relay();
    supervisor = pair.supervisor;
    ExecSession::Caller caller;
    caller.send = [this](const openshell::v1::ExecSandboxEvent& event, std::function<void(bool)> written) {
      events.push_back(event);
      if (slow) {
        held = std::move(written);
      } else {
        written(true);
      }
    };
    caller.finish = [this](absl::Status status) { finished.push_back(std::move(status)); };
    caller.after = [this](std::chrono::milliseconds delay, std::function<void()> work) { timers.emplace_back(delay, std::move(work)); };
    session = std::make_shared<ExecSession>(pair.requester, caller);
    listen();
  }
  void listen() {
    supervisor->read(
        [this](std::string bytes) {
          if (bytes.empty()) {
            ended = true;
            return;
          }
          raw += bytes;
          listen();
        },
        [this](const absl::Status& why) { aborted = why; });
  }
  std::vector<wire::ToSupervisor> received() {
    std::vector<wire::ToSupervisor> out;
    for (std::size_t at = 0; at + 4 <= raw.size();) {
      std::uint32_t size = 0;
      for (int i = 0; i < 4; ++i) size = size << 8U | static_cast<unsigned char>(raw[at + static_cast<std::size_t>(i)]);
      out.emplace_back().ParseFromString(raw.substr(at + 4, size));
      at += 4 + size;
    }
    return out;
  }
  void say(const wire::ToGateway& message) { say_bytes(message.SerializeAsString()); }
  void say_bytes(const std::string& body) {
    const auto n = static_cast<std::uint32_t>(body.size());
    supervisor->write(
        std::string{static_cast<char>(n >> 24U), static_cast<char>(n >> 16U), static_cast<char>(n >> 8U), static_cast<char>(n)} + body,
        [] {});
  }
  void say_started() {
    wire::ToGateway m;
    m.mutable_started()->set_process_id("p");
    say(m);
  }
  void say_stdout(const std::string& data) {
    wire::ToGateway m;
    m.set_stdout(data);
    say(m);
  }
  void say_exit(std::int64_t code) {
    wire::ToGateway m;
    m.mutable_exit()->set_code(code);
    say(m);
  }
  void say_credit(std::uint32_t bytes) {
    wire::ToGateway m;
    m.mutable_stdin_credit()->set_bytes(bytes);
    say(m);
  }
  void fire(std::chrono::milliseconds delay) {
    auto due = std::exchange(timers, {});
    for (auto& [when, work] : due) when == delay ? work() : void(timers.emplace_back(when, std::move(work)));
  }
  std::size_t stdin_bytes() {
    std::size_t total = 0;
    for (const auto& m : received()) total += m.stdin().size();
    return total;
  }

  std::shared_ptr<gateway::RelayEnd> supervisor;
  std::shared_ptr<ExecSession> session;
  openshell::v1::ExecSandboxRequest request;
  std::vector<openshell::v1::ExecSandboxEvent> events;
  std::vector<absl::Status> finished;
  std::vector<std::pair<std::chrono::milliseconds, std::function<void()>>> timers;
  std::function<void(bool)> held;
  bool slow = false;
  std::string raw;
  bool ended = false;
  absl::Status aborted;
};

TEST_F(Exec, GW_StartThenEndOfAbsentStdinThenOutputThenExactlyOneExit) {
  session->start(request, "printf hi", "id", false);
  auto got = received();
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].start().command(), "printf hi");
  EXPECT_TRUE(got[1].has_stdin_end());
  say_started();
  say_stdout("hi");
  say_exit(0);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].stdout().data(), "hi");
  EXPECT_EQ(events[1].exit().exit_code(), 0);
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_TRUE(finished[0].ok());
  session->cancel();
  EXPECT_TRUE(aborted.ok()) << "what ended well is not cancelled afterwards";
}

TEST_F(Exec, GW_StdinNeverExceedsItsCredit) {
  request.set_stdin(std::string(kExecWindow + 1'000, 'x'));
  session->start(request, "cat", "id", false);
  EXPECT_EQ(stdin_bytes(), kExecWindow);
  EXPECT_FALSE(received().back().has_stdin_end());
  say_started();
  say_credit(500);
  EXPECT_EQ(stdin_bytes(), kExecWindow + 500);
  say_credit(500);
  EXPECT_EQ(stdin_bytes(), kExecWindow + 1'000);
  EXPECT_TRUE(received().back().has_stdin_end());
  say_credit(kExecWindow + 1);
  ASSERT_EQ(finished.size(), 1U) << "more credit than bytes on the way is a protocol error";
  EXPECT_EQ(finished[0].message(), "exec protocol error");
}

TEST_F(Exec, GW_ASlowCallerHoldsTheOutputBack) {
  session->start(request, "yes", "id", false);
  say_started();
  slow = true;
  say_stdout("a");
  say_stdout("b");
  EXPECT_EQ(events.size(), 1U);
  slow = false;
  held(true);
  EXPECT_EQ(events.size(), 2U);
}

TEST_F(Exec, FB_TimeoutKillsTheTreeAndEndsWith124) {
  request.mutable_execution_timeout()->set_seconds(2);
  session->start(request, "sleep 100", "id", false);
  say_started();
  fire(2s);
  EXPECT_EQ(received().back().signal().kind(), wire::Signal::KILL);
  say_stdout("last words");
  say_exit(137);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].exit().exit_code(), 124);
  EXPECT_TRUE(finished.at(0).ok());
}

TEST_F(Exec, FB_TimeoutDoesNotWaitForASupervisorThatSaysNothing) {
  request.mutable_execution_timeout()->set_seconds(2);
  session->start(request, "sleep 100", "id", false);
  say_started();
  fire(2s);
  fire(kExecKilled);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].exit().exit_code(), 124);
}

TEST_F(Exec, FB_ACallerThatIsGoneCancelsTheRelay) {
  session->start(request, "sleep 100", "id", false);
  session->cancel();
  EXPECT_EQ(aborted.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(finished.empty());
}

TEST_F(Exec, GW_FailuresAreNeverShortenedSuccesses) {
  session->start(request, "x", "id", false);
  say_started();
  supervisor->abort(absl::UnavailableError("broken"));
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].message(), "exec relay closed before the command reported an exit status");
}

TEST_F(Exec, GW_AnEndWithoutExitIsAnError) {
  session->start(request, "x", "id", false);
  say_started();
  supervisor->end_output();
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].code(), absl::StatusCode::kUnavailable);
}

TEST_F(Exec, GW_FailureCodesAreMapped) {
  session->start(request, "x", "id", false);
  wire::ToGateway m;
  m.mutable_failure()->set_code(wire::Failure::EXHAUSTED);
  m.mutable_failure()->set_message("4,096 attempts are used up");
  say(m);
  EXPECT_EQ(finished.at(0).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(Exec, GW_LengthsBeyondTheBoundEndTheExec) {
  session->start(request, "x", "id", false);
  supervisor->write(std::string{"\x00\x01\x00\x01", 4}, [] {});
  EXPECT_EQ(finished.at(0).message(), "exec protocol error");
}

TEST_F(Exec, GW_NoStartedWithin30SecondsIsAnError) {
  session->start(request, "x", "id", false);
  fire(kExecStarted);
  EXPECT_EQ(finished.at(0).code(), absl::StatusCode::kUnavailable);
}

TEST_F(Exec, GW_InteractiveInputIsReadOnlyAsFastAsTheProcessTakesIt) {
  session->start(request, "cat", "id", true);
  say_started();
  int more = 0;
  std::size_t sent = 0;
  while (more * std::size_t{1'000'000} == sent && sent < 10'000'000) {
    session->stdin_bytes(std::string(1'000'000, 'x'), [&] { ++more; });
    sent += 1'000'000;
  }
  EXPECT_GE(sent, kMaxPendingStdin);
  EXPECT_LT(sent, kMaxPendingStdin + 1'000'001);
  fire(kExecStdinStall);
  ASSERT_EQ(events.size(), 1U) << "full, and the process took nothing for 30 s";
  EXPECT_EQ(events[0].exit().exit_code(), 74);
}

}  // namespace
}  // namespace openshell::api
