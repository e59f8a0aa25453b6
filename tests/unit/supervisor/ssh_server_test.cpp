// The SSH server with libssh's client on the other side and no sandbox: what is served, what is refused, what it stands.
#include "programs/supervisor/ssh/server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sys/un.h>
#include <sys/wait.h>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/unit/supervisor/ssh_client.hpp"
#include "tests/unit/supervisor/ssh_workload.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using test::FakePeer;
using test::FakeWorkload;
using test::SshClient;
using test::SshSessionChannel;

class SshServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "ssh-test-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    socket_ = directory_ + "/ssh.sock";
    key_ = *SshHostKey::make();
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  void start(const SshLimits& limits = {}) {
    auto server = SshServer::start({socket_, key_, workload_, limits});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  /// A raw connection that speaks no SSH by itself.
  isolation::FileDescriptor raw() { return *dial_ssh_socket(socket_); }
  /// Whether the server closes `fd` within 10 s.
  static bool closes(int fd) {
    char buffer[4'096];
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < until) {
      pollfd ready{fd, POLLIN, 0};
      if (::poll(&ready, 1, 1'000) != 1) continue;
      const auto count = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return true;  // also where libssh's client has closed it upon the end
    }
    return false;
  }
  bool settles_at(std::size_t connections) {
    for (int i = 0; i < 100 && server_->connections() != connections; ++i) std::this_thread::sleep_for(100ms);
    return server_->connections() == connections;
  }

  std::string directory_, socket_;
  std::shared_ptr<const SshHostKey> key_;
  std::shared_ptr<FakeWorkload> workload_ = std::make_shared<FakeWorkload>();
  std::unique_ptr<SshServer> server_;
};

// ---- who may

TEST_F(SshServerTest, CX_01_ListensOnAUnixSocketOfItsOwnerOnly) {
  start();
  struct stat info {};
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  server_.reset();
  EXPECT_NE(::stat(socket_.c_str(), &info), 0) << "the socket goes with the server";
}

TEST_F(SshServerTest, AStaleSocketIsReplacedAndALongPathRefused) {
  start();
  server_.reset();
  std::ofstream{socket_} << "left behind";
  start();
  SshClient client{socket_};
  EXPECT_TRUE(client.login());
  EXPECT_EQ(SshServer::start({"/" + std::string(107, 'x'), key_, workload_, {}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SshServerTest, AnybodyIsLetInAndTheKeyIsTheOneThatIsTold) {
  start();
  SshClient none{socket_};
  EXPECT_TRUE(none.login());
  EXPECT_EQ(none.fingerprint(), key_->fingerprint());
  EXPECT_THAT(key_->fingerprint(), ::testing::StartsWith("SHA256:"));

  SshClient with_key{socket_};
  ssh_key key = nullptr;
  ASSERT_EQ(ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &key), SSH_OK);
  EXPECT_EQ(ssh_userauth_publickey(with_key.handle(), nullptr, key), SSH_AUTH_SUCCESS);
  ssh_key_free(key);
}

TEST_F(SshServerTest, APasswordIsNotOfferedAndRefusalsAreCounted) {
  SshLimits limits;
  limits.auth_delay = 10ms;
  limits.auth_attempts = 3;
  start(limits);
  SshClient client{socket_};
  ASSERT_TRUE(client.connected());
  EXPECT_EQ(ssh_userauth_password(client.handle(), nullptr, "secret"), SSH_AUTH_DENIED);
  EXPECT_EQ(ssh_userauth_list(client.handle(), nullptr) & SSH_AUTH_METHOD_PASSWORD, 0);
  EXPECT_EQ(ssh_userauth_password(client.handle(), nullptr, "secret"), SSH_AUTH_DENIED);
  (void)ssh_userauth_password(client.handle(), nullptr, "secret");
  EXPECT_FALSE(client.login()) << "the third refusal ends the connection";
  EXPECT_TRUE(settles_at(0));
}

TEST(SshHostKey, IsNewEachTime) { EXPECT_NE((*SshHostKey::make())->fingerprint(), (*SshHostKey::make())->fingerprint()); }

// ---- what is served

TEST_F(SshServerTest, CX_10_ExecGivesOutputErrorsAndStatus) {
  auto peer = std::make_shared<FakePeer>();
  workload_->answer_ = [peer](const ProcessRequest&) { return std::static_pointer_cast<ChannelPeer>(peer); };
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel channel{client};
  ASSERT_TRUE(channel.open());
  ASSERT_TRUE(channel.exec("  make test \n"));
  peer->say({PeerOutput::Kind::output, "out", 0});
  peer->say({PeerOutput::Kind::error_output, "err", 0});
  peer->say({PeerOutput::Kind::exit, {}, 143});
  EXPECT_EQ(channel.read_all(), "out");
  EXPECT_EQ(channel.read_all(true), "err");
  EXPECT_EQ(channel.exit_status(), 143);
  const auto requests = workload_->requests(1);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].command, "make test");
  EXPECT_TRUE(requests[0].login);
  EXPECT_FALSE(requests[0].terminal.has_value());
}

TEST_F(SshServerTest, ASignalReachesTheProcessAlsoOneThatCameBeforeIt) {
  auto peer = std::make_shared<FakePeer>();
  workload_->answer_ = [peer](const ProcessRequest&) {
    std::this_thread::sleep_for(100ms);  // the process takes its time to exist
    return std::static_pointer_cast<ChannelPeer>(peer);
  };
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel channel{client};
  ASSERT_TRUE(channel.open());
  ASSERT_TRUE(channel.exec("sleep 1000"));
  using boundary::ProcessSignal;
  for (const char* name : {"TERM", "HUP", "INT", "NOSUCH", "KILL"})
    EXPECT_EQ(ssh_channel_request_send_signal(channel.handle(), name), SSH_OK);
  ASSERT_EQ(ssh_blocking_flush(client.handle(), 5'000), SSH_OK);
  EXPECT_TRUE(peer->wait([](const FakePeer& p) { return p.signals_.size() == 4; })) << peer->signals_.size();
  EXPECT_THAT(peer->signals_,
              ::testing::ElementsAre(ProcessSignal::term, ProcessSignal::hangup, ProcessSignal::interrupt, ProcessSignal::kill));
  peer->say({PeerOutput::Kind::exit, {}, 143});
  EXPECT_EQ(channel.exit_status(), 143) << "an unknown name did not end the connection";
}

TEST_F(SshServerTest, EveryByteOfALongStreamComesBackAndTheEndOfInputArrives) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel channel{client};
  ASSERT_TRUE(channel.open());
  ASSERT_TRUE(channel.exec("cat"));
  std::string sent;
  for (int i = 0; i < 3 * 1024 * 1024; ++i) sent += static_cast<char>(i * 2'654'435'761U >> 24U);
  std::string received;
  char buffer[65'536];
  for (std::size_t at = 0; at < sent.size();) {
    const int count =
        ssh_channel_write(channel.handle(), sent.data() + at, static_cast<std::uint32_t>(std::min<std::size_t>(32'768, sent.size() - at)));
    ASSERT_GT(count, 0);
    at += static_cast<std::size_t>(count);
    for (int got = 0; (got = ssh_channel_read_nonblocking(channel.handle(), buffer, sizeof buffer, 0)) > 0;)
      received.append(buffer, static_cast<std::size_t>(got));
  }
  ssh_channel_send_eof(channel.handle());
  received += channel.read_all();
  EXPECT_EQ(received.size(), sent.size());
  EXPECT_TRUE(received == sent);
  EXPECT_EQ(channel.exit_status(), 0);
}

TEST_F(SshServerTest, CX_15_OnlyOneValueOfNoLoginShellCountsAndOtherVariablesAreIgnored) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  std::size_t asked = 0;
  for (const auto& [value, login] : std::vector<std::pair<std::string, bool>>{{"1", false}, {"0", true}, {"yes", true}}) {
    SshSessionChannel channel{client};
    ASSERT_TRUE(channel.open());
    EXPECT_EQ(ssh_channel_request_env(channel.handle(), "OPENSHELL_NO_LOGIN_SHELL", value.c_str()), SSH_OK);
    EXPECT_EQ(ssh_channel_request_env(channel.handle(), "LD_PRELOAD", "/tmp/x.so"), SSH_OK) << "success, and ignored";
    ASSERT_TRUE(channel.exec("true"));
    const auto requests = workload_->requests(++asked);
    ASSERT_EQ(requests.size(), asked);
    EXPECT_EQ(requests.back().login, login) << value;
  }
}

TEST_F(SshServerTest, CX_09_ATerminalIsAsWideAsTheClientSaysAndEachChannelHasItsOwn) {
  auto first = std::make_shared<FakePeer>(), second = std::make_shared<FakePeer>();
  workload_->answer_ = [=](const ProcessRequest& request) {
    return std::static_pointer_cast<ChannelPeer>(request.terminal ? first : second);
  };
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel with{client}, without{client};
  ASSERT_TRUE(with.open() && without.open());
  ASSERT_EQ(ssh_channel_request_pty_size(with.handle(), "xterm", 101, 33), SSH_OK);
  ASSERT_EQ(ssh_channel_request_shell(with.handle()), SSH_OK);
  ASSERT_EQ(ssh_channel_request_shell(without.handle()), SSH_OK);
  const auto requests = workload_->requests(2);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_FALSE(requests[0].command.has_value());
  ASSERT_TRUE(requests[0].terminal.has_value());
  EXPECT_EQ(requests[0].terminal->term, "xterm");
  EXPECT_EQ(requests[0].terminal->size.columns, 101U);
  EXPECT_EQ(requests[0].terminal->size.rows, 33U);
  EXPECT_FALSE(requests[1].terminal.has_value());
  ssh_channel_change_pty_size(with.handle(), 120, 40);
  EXPECT_TRUE(first->wait([](const FakePeer& p) { return p.sizes_ == decltype(p.sizes_){{120, 40}}; }));
  ssh_channel_close(with.handle());
  EXPECT_TRUE(first->wait([](const FakePeer& p) { return p.closed_; })) << "a channel owns its process";
  EXPECT_FALSE(second->closed_);
}

TEST_F(SshServerTest, ADroppedConnectionEndsItsProcesses) {
  auto peer = std::make_shared<FakePeer>();
  workload_->answer_ = [peer](const ProcessRequest&) { return std::static_pointer_cast<ChannelPeer>(peer); };
  start();
  {
    SshClient client{socket_};
    ASSERT_TRUE(client.login());
    SshSessionChannel channel{client};
    ASSERT_TRUE(channel.open() && channel.exec("sleep 1000"));
    ::shutdown(client.fd(), SHUT_RDWR);
    EXPECT_TRUE(peer->wait([](const FakePeer& p) { return p.closed_; }));
  }
  EXPECT_TRUE(settles_at(0));
}

TEST_F(SshServerTest, WhatCannotBeStartedIsSaidWithAShellsCode) {
  workload_->answer_ = [](const ProcessRequest& request) -> absl::StatusOr<std::shared_ptr<ChannelPeer>> {
    if (request.command == "a") return absl::NotFoundError("no shell in the image");
    if (request.command == "b") return absl::PermissionDeniedError("/bin/sh may not be executed");
    return absl::UnavailableError("the sandbox is frozen");
  };
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  const std::vector<std::tuple<std::string, std::string, int>> cases{{"a", "openshell: no shell in the image\n", 127},
                                                                     {"b", "openshell: /bin/sh may not be executed\n", 126},
                                                                     {"c", "openshell: the sandbox is frozen\n", 1}};
  for (const auto& [command, text, code] : cases) {
    SshSessionChannel channel{client};
    ASSERT_TRUE(channel.open() && channel.exec(command));
    EXPECT_EQ(channel.read_all(true), text);
    EXPECT_EQ(channel.exit_status(), code);
  }
}

TEST_F(SshServerTest, AnEmptyCommandStartsNothing) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel channel{client};
  ASSERT_TRUE(channel.open() && channel.exec("  "));
  EXPECT_EQ(channel.exit_status(), 0);
  EXPECT_THAT(workload_->requests(), ::testing::IsEmpty());
}

// ---- main

TEST_F(SshServerTest, CX_04_MainIsASubsystemAndARefusalIsSaidBehindSuccess) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel refused{client};
  ASSERT_TRUE(refused.open());
  ASSERT_EQ(ssh_channel_request_subsystem(refused.handle(), "openshell-main"), SSH_OK);
  EXPECT_EQ(refused.read_all(true), "openshell: cannot connect to the canonical main process: canonical main process already finished\n");
  EXPECT_EQ(refused.exit_status(), 1);

  workload_->main_ = std::make_shared<FakePeer>();
  SshSessionChannel viewer{client};
  ASSERT_TRUE(viewer.open());
  ssh_channel_request_env(viewer.handle(), "OPENSHELL_MAIN_READ_ONLY", "1");
  ssh_channel_request_pty_size(viewer.handle(), "xterm", 90, 20);
  ASSERT_EQ(ssh_channel_request_subsystem(viewer.handle(), "openshell-main"), SSH_OK);
  EXPECT_TRUE(workload_->main_->wait([](const FakePeer& p) { return p.sizes_ == decltype(p.sizes_){{90, 20}}; }));
  EXPECT_THAT(workload_->attached_, ::testing::ElementsAre("owner LF", "read-only CRLF"));
}

TEST_F(SshServerTest, SftpIsARuntimeHelperAndAnotherSubsystemIsRefused) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel sftp{client}, other{client};
  ASSERT_TRUE(sftp.open() && other.open());
  EXPECT_EQ(ssh_channel_request_subsystem(sftp.handle(), "sftp"), SSH_OK);
  const auto requests = workload_->requests(1);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests.back().runtime_helper, "sftp");
  EXPECT_EQ(ssh_channel_request_subsystem(other.handle(), "netconf"), SSH_ERROR);
  EXPECT_EQ(ssh_channel_request_exec(sftp.handle(), "true"), SSH_ERROR) << "one thing a channel";
}

// ---- forwards

TEST_F(SshServerTest, CX_19_ForwardsReachLoopbackOnly) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  const auto open = [&](const char* host, int port) {
    ssh_channel channel = ssh_channel_new(client.handle());
    const bool opened = ssh_channel_open_forward(channel, host, port, "localhost", 1) == SSH_OK;
    ssh_channel_free(channel);
    return opened;
  };
  for (const char* host : {"127.0.0.1", "127.9.9.9", "LocalHost", "::1", "[::1]", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"})
    EXPECT_TRUE(open(host, 8'080)) << host;
  for (const char* host : {"10.1.2.3", "example.test", "0.0.0.0", "::", "::ffff:10.0.0.1", "127.0.0.1.evil.test", "169.254.169.254"})
    EXPECT_FALSE(open(host, 8'080)) << host;
  EXPECT_FALSE(open("127.0.0.1", 0));
  EXPECT_FALSE(open("127.0.0.1", 65'536));
  EXPECT_THAT(workload_->targets(), ::testing::Each(::testing::AnyOf("127.0.0.1:8080", "127.9.9.9:8080", "::1:8080")));
}

TEST_F(SshServerTest, CX_47_EachDirectionOfAForwardEndsByItself) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel channel{client};
  ASSERT_EQ(ssh_channel_open_forward(channel.handle(), "localhost", 80, "localhost", 1), SSH_OK);
  ASSERT_TRUE(channel.write("question"));
  ssh_channel_send_eof(channel.handle());
  auto& peer = *workload_->connection_;
  ASSERT_TRUE(peer.wait([](const FakePeer& p) { return p.input_closed_; }));
  EXPECT_EQ(peer.input_, "question");
  const std::string answer(1024 * 1024, 'a');
  for (std::size_t at = 0; at < answer.size(); at += 65'536) peer.say({PeerOutput::Kind::output, answer.substr(at, 65'536), 0});
  peer.say({PeerOutput::Kind::end, {}, 0});
  EXPECT_EQ(channel.read_all().size(), answer.size());
}

TEST_F(SshServerTest, ATargetThatIsNotThereClosesTheConfirmedChannel) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel channel{client};
  // libssh's client tells of success only where the close did not come with the confirmation.
  if (ssh_channel_open_forward(channel.handle(), "localhost", FakeWorkload::kClosedPort, "localhost", 1) == SSH_OK) {
    EXPECT_EQ(channel.read_all(), "");
  }
  EXPECT_EQ(ssh_is_connected(client.handle()), 1) << "the connection goes on";
}

TEST_F(SshServerTest, RemoteForwardsAreRefused) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  int bound = 0;
  EXPECT_NE(ssh_channel_listen_forward(client.handle(), "127.0.0.1", 0, &bound), SSH_OK);
}

// ---- bounds

TEST_F(SshServerTest, SessionsOfAConnectionAreBounded) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  std::vector<std::unique_ptr<SshSessionChannel>> open;
  for (std::size_t i = 0; i < SshLimits{}.sessions; ++i) {
    open.push_back(std::make_unique<SshSessionChannel>(client));
    ASSERT_TRUE(open.back()->open()) << i;
  }
  SshSessionChannel extra{client};
  EXPECT_FALSE(extra.open());
  ssh_channel_close(open.back()->handle());
  bool opened = false;
  for (int i = 0; i < 100 && !opened; ++i) opened = SshSessionChannel{client}.open();
  EXPECT_TRUE(opened) << "a closed channel gives its place back";
}

TEST_F(SshServerTest, ForwardsOfAConnectionAreBounded) {
  SshLimits limits;
  limits.forwards = 4;
  start(limits);
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  std::vector<std::unique_ptr<SshSessionChannel>> open;
  for (int i = 0; i < 5; ++i) {
    open.push_back(std::make_unique<SshSessionChannel>(client));
    EXPECT_EQ(ssh_channel_open_forward(open.back()->handle(), "localhost", 80, "localhost", 1) == SSH_OK, i < 4) << i;
  }
  SshSessionChannel session{client};
  EXPECT_TRUE(session.open()) << "forwards take no place of sessions";
}

TEST_F(SshServerTest, AConnectionTooManyWaitsUntilOneLeaves) {
  SshLimits limits;
  limits.connections = 2;
  start(limits);
  auto first = std::make_unique<SshClient>(socket_);
  SshClient second{socket_};
  ASSERT_TRUE(first->login() && second.login());
  auto third = std::async(std::launch::async, [this] { return SshClient{socket_}.login(); });
  EXPECT_EQ(third.wait_for(500ms), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(third.get());
}

TEST_F(SshServerTest, ACommandTooLongIsRefused) {
  SshLimits limits;
  limits.command_bytes = 1'000;
  start(limits);
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel at{client}, above{client};
  ASSERT_TRUE(at.open() && above.open());
  EXPECT_TRUE(at.exec(std::string(1'000, 'a')));
  EXPECT_FALSE(above.exec(std::string(1'001, 'a')));
}

TEST_F(SshServerTest, AHalfOpenHandshakeEndsAndHoldsNobodyUp) {
  SshLimits limits;
  limits.handshake = 2s;  // ample for the client that keeps to it
  start(limits);
  const auto silent = raw(), slow = raw(), banner = raw();
  ASSERT_EQ(::send(banner.get(), "SSH-2.0-x\r\n", 11, 0), 11);
  ASSERT_EQ(::send(slow.get(), "S", 1, 0), 1);
  SshClient client{socket_};
  EXPECT_TRUE(client.login()) << "others are served meanwhile";
  EXPECT_TRUE(closes(silent.get()));
  EXPECT_TRUE(closes(slow.get()));
  EXPECT_TRUE(closes(banner.get()));
  EXPECT_TRUE(settles_at(1));
}

TEST_F(SshServerTest, GarbageEndsOnlyItsOwnConnection) {
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  for (const std::string& bytes :
       {std::string(100'000, 'A'), "SSH-1.5-old\r\n" + std::string(1'000, '\xff'),
        "SSH-2.0-x\r\n" + std::string("\xff\xff\xff\xff\x04", 5) + std::string(5'000, '\x14'), std::string("\0\0\0\0", 4)}) {
    const auto fd = raw();
    (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(closes(fd.get()));
  }
  SshSessionChannel channel{client};
  EXPECT_TRUE(channel.open() && channel.exec("true"));
}

TEST_F(SshServerTest, ASilentClientIsAskedAndOneThatDoesNotAnswerIsDropped) {
  SshLimits limits;
  limits.keepalive = 100ms;
  limits.dead = 600ms;
  start(limits);
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  const auto until = std::chrono::steady_clock::now() + 1'500ms;  // longer than `dead`: it lives by its answers
  SshSessionChannel channel{client};
  ASSERT_TRUE(channel.open());
  while (std::chrono::steady_clock::now() < until) (void)ssh_channel_poll_timeout(channel.handle(), 50, 0);
  EXPECT_EQ(server_->connections(), 1U);
  EXPECT_TRUE(closes(client.fd()));  // from here on nobody answers
  EXPECT_TRUE(settles_at(0));
}

TEST_F(SshServerTest, ASlowReaderSlowsItsProcessOnly) {
  auto flood = std::make_shared<FakePeer>();
  workload_->answer_ = [flood](const ProcessRequest& request) {
    return std::static_pointer_cast<ChannelPeer>(request.command == "yes" ? flood : std::make_shared<FakePeer>(true));
  };
  start();
  SshClient slow{socket_};
  ASSERT_TRUE(slow.login());
  SshSessionChannel channel{slow};
  ASSERT_TRUE(channel.open() && channel.exec("yes"));
  for (int i = 0; i < 200; ++i) flood->say({PeerOutput::Kind::output, std::string(65'536, 'y'), 0});
  SshClient other{socket_};
  ASSERT_TRUE(other.login());
  SshSessionChannel quick{other};
  ASSERT_TRUE(quick.open() && quick.exec("cat"));
  ssh_channel_send_eof(quick.handle());
  EXPECT_EQ(quick.exit_status(), 0);
  EXPECT_LT(flood->reads_, 100) << "13 MB were offered; windows and buffers hold less";
  for (int i = 0; i < 100; ++i) flood->say({PeerOutput::Kind::output, std::string(10, 'z'), 0});
  flood->say({PeerOutput::Kind::exit, {}, 7});
  EXPECT_EQ(channel.read_all().size(), 200U * 65'536 + 1'000) << "nothing is lost";
  EXPECT_EQ(channel.exit_status(), 7);
}

TEST_F(SshServerTest, InputThatNobodyTakesStopsTheClient) {
  auto stuck = std::make_shared<FakePeer>();
  stuck->hold_writes();
  workload_->answer_ = [stuck](const ProcessRequest&) { return std::static_pointer_cast<ChannelPeer>(stuck); };
  start();
  SshClient client{socket_};
  ASSERT_TRUE(client.login());
  SshSessionChannel channel{client};
  ASSERT_TRUE(channel.open() && channel.exec("sleep 1000"));
  ASSERT_TRUE(channel.write("first"));
  ASSERT_TRUE(stuck->wait([](const FakePeer& p) { return !p.input_.empty(); }));
  ssh_set_blocking(client.handle(), 0);
  const std::string piece(32'768, 'x');
  std::size_t taken = 0;
  for (int idle = 0; idle < 50;) {
    const int count = ssh_channel_write(channel.handle(), piece.data(), static_cast<std::uint32_t>(piece.size()));
    ASSERT_GE(count, 0) << "a client that keeps to its window is not dropped";
    taken += static_cast<std::size_t>(count);
    idle = count == 0 ? idle + 1 : 0;
    if (count == 0) (void)ssh_channel_poll_timeout(channel.handle(), 20, 0);
  }
  EXPECT_LE(taken, 2 * SshLimits{}.channel_input);
  EXPECT_EQ(server_->connections(), 1U);
}

TEST_F(SshServerTest, AThreadThatAClientKeepsBusyIsCut) {
  std::promise<void> release;
  auto released = release.get_future().share();
  workload_->answer_ = [released](const ProcessRequest& request) -> absl::StatusOr<std::shared_ptr<ChannelPeer>> {
    if (request.command == "block") released.wait_for(30s);
    return std::static_pointer_cast<ChannelPeer>(std::make_shared<FakePeer>(true));
  };
  SshLimits limits;
  limits.stuck = 1s;
  start(limits);
  SshClient client{socket_}, other{socket_};
  ASSERT_TRUE(client.login() && other.login());
  SshSessionChannel channel{client};
  ASSERT_TRUE(channel.open());
  (void)channel.exec("block");
  EXPECT_TRUE(closes(client.fd()));
  SshSessionChannel fine{other};
  EXPECT_TRUE(fine.open() && fine.exec("true"));
  release.set_value();
  EXPECT_TRUE(settles_at(1));
}

TEST_F(SshServerTest, StoppingCutsEverybodyAtOnce) {
  auto peer = std::make_shared<FakePeer>();
  workload_->answer_ = [peer](const ProcessRequest&) { return std::static_pointer_cast<ChannelPeer>(peer); };
  start();
  SshClient running{socket_};
  ASSERT_TRUE(running.login());
  SshSessionChannel channel{running};
  ASSERT_TRUE(channel.open() && channel.exec("sleep 1000"));
  const auto half = raw();
  const auto began = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  EXPECT_TRUE(peer->wait([](const FakePeer& p) { return p.closed_; }));
}

TEST_F(SshServerTest, AnAbstractSocketIsDialledOnlyWhereItsPeerIsThisProcess) {
  socket_ = "@openshell-ssh-test-" + std::to_string(::getpid());
  start();
  EXPECT_TRUE(SshClient{socket_}.login());
  server_.reset();
  const auto child = ::fork();
  if (child == 0) {  // another process took the name
    auto foreign = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, socket_.data() + 1, socket_.size() - 1);
    ::bind(foreign, reinterpret_cast<sockaddr*>(&name), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size()));
    ::listen(foreign, 1);
    ::pause();
    ::_exit(0);
  }
  absl::Status status;
  for (int i = 0; i < 100; ++i) {
    status = dial_ssh_socket(socket_).status();
    if (!absl::IsUnavailable(status)) break;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_THAT(std::string{status.message()}, ::testing::HasSubstr("SSH relay peer PID mismatch"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace openshell::supervisor
