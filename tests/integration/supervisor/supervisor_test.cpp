// The program `openshell-supervisor` between a scripted gateway and a sandbox runtime that speaks the channel's protocol.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>
#include <utility>

#include "isolation/boundary/launch_material.hpp"
#include "policy/parse.hpp"
#include "tests/integration/supervisor/fake_boundary.hpp"
#include "tests/integration/supervisor/scripted_gateway.hpp"

extern char** environ;

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// A directory that goes away with the test.
class Scratch {
 public:
  Scratch() {
    std::string pattern = "/tmp/supervisor-it-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Answers every connection with "echo:" and what it read, then ends.
class EchoServer {
 public:
  EchoServer() {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(fd_, 8);
    socklen_t size = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread{[this] {
      while (true) {
        const int peer = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
        if (peer < 0) return;
        ++connections_;
        std::string text = "echo:";
        char buffer[4096];
        ssize_t count;
        while ((count = ::read(peer, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<std::size_t>(count));
        (void)!::write(peer, text.data(), text.size());
        ::close(peer);
      }
    }};
  }
  ~EchoServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  int fd_;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::thread thread_;
};

sandbox::v1::SandboxPolicy policy_for(const std::vector<int>& ports) {
  std::string text =
      "version: 1\nfilesystem_policy:\n  include_workdir: true\n  read_only: [/usr, /lib, /etc, /proc, /bin, /dev/urandom, /var/log, "
      "/app]\n  read_write: [/tmp, /dev/null, /sandbox]\n";
  if (!ports.empty()) {
    text += "network_policies:\n  host_api:\n    name: host_api\n    endpoints:\n";
    for (const int port : ports)
      text += "      - host: host.openshell.internal\n        port: " + std::to_string(port) + "\n        protocol: tcp\n";
    text += "    binaries:\n      - path: \"**/curl\"\n";
  }
  auto loaded = policy::load_policy(text, "test.yaml");
  EXPECT_TRUE(loaded.ok()) << text << loaded.diagnostics.render();
  return loaded.policy ? *loaded.policy : sandbox::v1::SandboxPolicy{};
}

class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(scratch / "state");
    std::filesystem::create_directories(scratch / "log");
    boundary_ = std::make_unique<test::FakeBoundary>(scratch.path());
  }
  void TearDown() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (HasFailure()) {
      std::ifstream file{scratch / "stderr"};
      std::cerr << file.rdbuf();
    }
  }

  void launch(std::vector<std::string> more = {}) {
    write(scratch / "descriptor.json", boundary::serialise(boundary_->descriptor()));
    boundary::AuthBundle auth;
    auth.session_id = boundary_->descriptor().session_id;
    auth.runtime_generation = boundary_->descriptor().generation;
    auth.gateway_token = Secret{"gateway-token"};
    auth.sandbox_token = Secret{"sandbox-token"};
    write(scratch / "auth.json", boundary::serialise(auth));
    std::vector<std::string> arguments{std::string{OPENSHELL_BIN_DIR} + "/openshell-supervisor",
                                       "--sandbox-id",
                                       "sandbox-1",
                                       "--sandbox",
                                       "box",
                                       "--openshell-endpoint",
                                       gateway.endpoint(),
                                       "--backend-descriptor-file",
                                       scratch / "descriptor.json",
                                       "--auth-bundle-file",
                                       scratch / "auth.json",
                                       "--state-dir",
                                       scratch / "state",
                                       "--log-dir",
                                       scratch / "log",
                                       "--main-exit-marker",
                                       scratch / "exited",
                                       "--log-level",
                                       "debug",
                                       "--denial-flush-interval-secs",
                                       "1",
                                       "--health-socket-path",
                                       scratch / "health.sock",
                                       "--poll-interval-secs",
                                       "3600"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables{"OPENSHELL_ADMITTED_ISOLATION_BACKEND=openshell-sandbox",
                                       R"(OPENSHELL_MAIN_PROCESS_SPEC={"version":1,"command":["sleep","9"],"tty":false})"};
    std::vector<char*> envp;
    for (auto& variable : variables) envp.push_back(variable.data());
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (scratch / "stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
  }

  static void write(const std::string& path, const std::string& content) {
    std::ofstream{path} << content;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  }
  static std::string read(const std::string& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
  }

  int wait_for_end() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int stop() {
    ::kill(pid_, SIGTERM);
    return wait_for_end();
  }

  /// The IPv4 address at the end of an answer with one A record.
  static std::string address_of(const std::string& answer) {
    if (answer.size() < 16) return {};
    std::string text;
    for (std::size_t i = answer.size() - 4; i < answer.size(); ++i)
      text += (text.empty() ? "" : ".") + std::to_string(static_cast<unsigned char>(answer[i]));
    return text;
  }

  void until_running() {
    launch();
    ASSERT_TRUE(boundary_->wait_for("start_agent"));
    ASSERT_TRUE(gateway.wait_for_session());
  }

  Scratch scratch;
  test::ScriptedGateway gateway;
  std::unique_ptr<test::FakeBoundary> boundary_;
  EchoServer echo;
  pid_t pid_ = -1;
};

TEST_F(SupervisorTest, ST_09_AdmissionPrecedesAttachAndConfirmPrecedesLaunch) {  // CA-94, CA-97, CA-88, ST-10
  gateway.set_policy(policy_for({echo.port()}), 1);
  gateway.set_environment("API_TOKEN", "the-real-secret");
  until_running();
  auto operations = boundary_->operations();
  const auto at = [&](const char* name) { return std::find(operations.begin(), operations.end(), name) - operations.begin(); };
  EXPECT_LT(at("discover_policy"), at("attach"));
  EXPECT_LT(at("attach"), at("confirm"));
  EXPECT_LT(at("confirm"), at("start_agent"));
  EXPECT_TRUE(gateway.wait_for_admission(v1::CONFIGURATION_ADMISSION_STATE_PENDING));
  EXPECT_TRUE(gateway.wait_for_admission(v1::CONFIGURATION_ADMISSION_STATE_ACCEPTED));
  EXPECT_TRUE(gateway.wait_for_status(1, v1::POLICY_STATUS_LOADED));
  EXPECT_EQ(read(scratch / "state/confirmed"), "generation-1");
  const auto started = boundary_->started();
  ASSERT_TRUE(started);
  EXPECT_EQ(started->spec.program, "sleep");
  EXPECT_THAT(started->ca_cert.value_or(""), HasSubstr("BEGIN CERTIFICATE"));
  ASSERT_EQ(started->provider_env.count("API_TOKEN"), 1U);
  EXPECT_EQ(started->provider_env.at("API_TOKEN").find("the-real-secret"), std::string::npos) << "the workload gets a placeholder";
  EXPECT_EQ(read(scratch / "stderr").find("the-real-secret"), std::string::npos);
}

TEST_F(SupervisorTest, EX_OutputStdinAndExitCodeOfAnExec) {
  gateway.set_policy(policy_for({}), 1);
  until_running();
  const auto printed = gateway.exec("print this", "");
  EXPECT_EQ(printed.relay_error, "");
  EXPECT_EQ(printed.out, "print this");
  EXPECT_EQ(printed.err, "err");
  EXPECT_EQ(printed.code, 7);
  std::string input(1'000'000, 'x');  // four windows of credit
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<char>(i % 251);
  const auto copied = gateway.exec("cat", input);
  EXPECT_EQ(copied.code, 0);
  EXPECT_TRUE(copied.out == input) << copied.out.size() << " bytes came back";
}

TEST_F(SupervisorTest, D30_AnExecWhoseCallerIsGoneIsTerminated) {
  gateway.set_policy(policy_for({}), 1);
  until_running();
  ASSERT_TRUE(gateway.exec_and_cancel("hang"));
  EXPECT_TRUE(boundary_->wait_for("terminate"));
}

TEST_F(SupervisorTest, AllowedAndDeniedConnectionsAndAPolicyChangeThatIsAcknowledged) {  // FB-07
  EchoServer second;
  gateway.set_policy(policy_for({echo.port()}), 1);
  until_running();
  ASSERT_TRUE(boundary_->wait_for("open_mediation"));
  const auto host = address_of(boundary_->resolve("host.openshell.internal"));
  ASSERT_FALSE(host.empty());

  const auto allowed = boundary_->open(host + ":" + std::to_string(echo.port()), "/usr/bin/curl", "hello");
  EXPECT_EQ(allowed.decision, boundary::OpenDecision::relay_ready);
  EXPECT_EQ(allowed.received, "echo:hello");

  const auto other_binary = boundary_->open(host + ":" + std::to_string(echo.port()), "/usr/bin/python3", "hello");
  EXPECT_EQ(other_binary.decision, boundary::OpenDecision::policy_denied);
  const auto denied = boundary_->open(host + ":" + std::to_string(second.port()), "/usr/bin/curl", "hello");
  EXPECT_EQ(denied.decision, boundary::OpenDecision::policy_denied);
  EXPECT_EQ(second.connections(), 0);
  EXPECT_TRUE(gateway.wait_for_log("DENIED /usr/bin/python3(4711) ->"));
  EXPECT_TRUE(gateway.wait_for_log("ALLOWED /usr/bin/curl(4711) ->"));
  EXPECT_TRUE(gateway.wait_for_log("denial_id"));
  EXPECT_TRUE(gateway.wait_for_analysis("host.openshell.internal"));

  gateway.set_policy(policy_for({echo.port(), second.port()}), 2);
  ASSERT_TRUE(gateway.nudge("n1"));
  EXPECT_TRUE(gateway.wait_for_status(2, v1::POLICY_STATUS_LOADED));
  EXPECT_TRUE(gateway.wait_for_applied("n1"));
  const auto renewed = address_of(boundary_->resolve("host.openshell.internal"));  // a mapping belongs to its policy
  const auto now_allowed = boundary_->open(renewed + ":" + std::to_string(second.port()), "/usr/bin/curl", "again");
  EXPECT_EQ(now_allowed.decision, boundary::OpenDecision::relay_ready);
  EXPECT_EQ(now_allowed.received, "echo:again");
}

TEST_F(SupervisorTest, MainExitIsMarkedReportedAndFinalizedAndTheSandboxStays) {  // FB-22
  gateway.set_policy(policy_for({}), 1);
  until_running();
  boundary_->exit_main(3);
  EXPECT_TRUE(gateway.wait_for_main_exit(3));
  EXPECT_EQ(read(scratch / "exited"), "exit_code=3\n");
  EXPECT_EQ(gateway.exec("still here", "").out, "still here");
  EXPECT_EQ(stop(), 3);
  EXPECT_TRUE(boundary_->wait_for("terminate_boundary"));
}

TEST_F(SupervisorTest, TheLastLinesOfAStoppedSupervisorReachTheGateway) {
  gateway.set_policy(policy_for({}), 1);
  until_running();
  stop();
  EXPECT_TRUE(gateway.wait_for_log("the sandbox ended"));
}

TEST_F(SupervisorTest, SigtermEndsMainThenTheBoundaryThenTheProcess) {  // FB-20, ST-25
  gateway.set_policy(policy_for({}), 1);
  until_running();
  stop();
  const auto operations = boundary_->operations();
  const auto at = [&](const char* name) { return std::find(operations.begin(), operations.end(), name) - operations.begin(); };
  EXPECT_LT(at("signal"), at("terminate_boundary"));
  EXPECT_LT(at("terminate_boundary"), static_cast<std::ptrdiff_t>(operations.size()));
}

TEST_F(SupervisorTest, AGatewayThatIsGoneForAMomentIsFoundAgain) {
  gateway.set_policy(policy_for({}), 1);
  until_running();
  gateway.drop_session();
  EXPECT_TRUE(gateway.wait_for_session());
  EXPECT_EQ(gateway.exec("back", "").out, "back");
}

TEST_F(SupervisorTest, AnUnusableImagePolicyIsRejectedAndRepairedByAPolicyOfTheGateway) {  // CA-01, CA-09, CA-19, CA-95, CA-96
  boundary_->image_policy = "version: 1\nnonsense: true\n";
  launch();
  EXPECT_TRUE(gateway.wait_for_admission(v1::CONFIGURATION_ADMISSION_STATE_REJECTED));
  EXPECT_FALSE(boundary_->started());
  EXPECT_THAT(boundary_->operations(), testing::Each("discover_policy")) << "nothing is attached or confirmed, nor its network served";
  EXPECT_FALSE(std::filesystem::exists(scratch / "health.sock"));
  gateway.set_policy(policy_for({}), 1);
  EXPECT_TRUE(boundary_->wait_for("start_agent"));
}

TEST_F(SupervisorTest, ARefusedAttachEndsTheStart) {
  boundary_->attach_error = boundary::Error{boundary::ErrorKind::denied, "sandbox runtime is already bound to another supervisor process"};
  gateway.set_policy(policy_for({}), 1);
  launch();
  EXPECT_EQ(wait_for_end(), 1);
  EXPECT_FALSE(boundary_->started());
  EXPECT_FALSE(std::filesystem::exists(scratch / "state/confirmed"));
  EXPECT_THAT(read(scratch / "stderr"), HasSubstr("already bound to another supervisor"));
}

// ST-11, ST-12, ST-17, ST-18, DRV-31, DRV-32, DRV-33, RT-79
TEST_F(SupervisorTest, ST_11_ST_12_ST_17_ST_18_NoPermitForAClaimThatIsNotWhatWasAdmitted) {
  struct Case {
    const char* says;
    std::function<void(boundary::Confirmation&)> distort;
  };
  std::vector<Case> cases = {
      {"another generation", [](auto& claim) { claim.generation = "generation-2"; }},
      {"another session", [](auto& claim) { claim.session_id = "00000000-0000-4000-8000-000000000009"; }},
      {"another supervisor", [](auto& claim) { claim.authenticated_supervisor = "00000000-0000-4000-8000-000000000009"; }},
      {"workload identity", [](auto& claim) { ++claim.identity.uid; }},
      {"resource claims", [](auto& claim) { claim.resource_claims["process.netns"] = "4:999"; }},
      {"outlive its runtime", [](auto& claim) { claim.runtime_exit_terminates_workload = false; }},
      {"outer fence", [](auto& claim) { claim.outer_fence.generation = "generation-2"; }},
      {"outer fence",
       [](auto& claim) { claim.outer_fence.evidence_digest.back() = claim.outer_fence.evidence_digest.back() == '0' ? '1' : '0'; }},
      {"incomplete", [](auto& claim) { claim.backend_audit.reset(); }},
      {"incomplete", [](auto& claim) { claim.backend_audit->tcp_deny_round_trip = false; }},
      {"not what the audit proves", [](auto& claim) { claim.backend_audit->landlock_abi = 3; }},
  };
  for (std::size_t guarantee = 0; guarantee < boundary::kFenceGuarantees.size(); ++guarantee) {
    cases.push_back({"outer fence", [=](auto& claim) {
                       auto& established = claim.outer_fence.established;
                       established.erase(established.begin() + static_cast<std::ptrdiff_t>(guarantee));
                     }});
  }
  gateway.set_policy(policy_for({}), 1);
  for (const auto& each : cases) {
    boundary_->distort = each.distort;
    launch();
    EXPECT_EQ(wait_for_end(), 1) << each.says;
    EXPECT_FALSE(boundary_->started()) << each.says;
    EXPECT_FALSE(std::filesystem::exists(scratch / "state/confirmed")) << each.says;
    EXPECT_FALSE(std::filesystem::exists(scratch / "health.sock")) << each.says;
    EXPECT_THAT(read(scratch / "stderr"), HasSubstr(each.says));
  }
}

TEST_F(SupervisorTest, ADescriptorOfAnotherSandboxStartsNothing) {
  launch({"--sandbox-id", "another"});
  EXPECT_EQ(wait_for_end(), 1);
  EXPECT_TRUE(boundary_->operations().empty());
}

}  // namespace
}  // namespace openshell::supervisor
