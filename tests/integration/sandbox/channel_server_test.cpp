// The listening end of the channel alone: who may speak at all, and how long, before TLS is done; and that nothing of a call stays.
#include "actors/sandbox/channel_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "isolation/file_descriptor.hpp"
#include "pki/session.hpp"
#include "tests/integration/sandbox/fixture.hpp"

namespace openshell::sandbox {
namespace {

std::string any_public_key() {
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PUBKEY(bio, key);
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio, &data);
  std::string pem(data, static_cast<std::size_t>(n));
  BIO_free(bio);
  EVP_PKEY_free(key);
  return pem;
}

std::unique_ptr<ChannelServer> serve(std::variant<boundary::UnixListener, boundary::TcpListener, boundary::VsockListener> endpoint,
                                     std::chrono::milliseconds deadline) {
  const auto certificates = *pki::make_session_certificates(SessionId{"1b671a64-40d5-491e-99b0-da01ff1f3341"});
  ChannelServer::Options options{{std::move(endpoint), {}},
                                 certificates.server_certificate,
                                 certificates.server_key,
                                 certificates.ca_certificate,
                                 *boundary::SessionTokenVerifier::make({{"k", any_public_key()}}, {"gw", "sb", "g", 1}),
                                 deadline};
  auto server = ChannelServer::start(std::move(options), {[](ConnectionNumber) { ADD_FAILURE() << "nobody is trusted here"; },
                                                          [](ConnectionNumber) {}, [](std::shared_ptr<Call>) {}});
  EXPECT_TRUE(server.ok()) << server.status();
  return std::move(*server);
}

/// Whether the peer has closed within `ms`; a byte from it fails.
bool closed_within(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  if (::poll(&p, 1, ms) != 1) return false;
  char byte;
  const ssize_t n = ::recv(fd, &byte, 1, 0);
  EXPECT_LE(n, 0) << "it was told something";
  return n <= 0;
}

isolation::FileDescriptor connect_to(std::uint16_t port) {
  isolation::FileDescriptor fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(ChannelServerBounds, RT_12_AProcessOfOurOwnIsClosedWithoutAByte) {  // RT-69
  char pattern[] = "/tmp/channel-test-XXXXXX";
  const std::string dir = ::mkdtemp(pattern), path = dir + "/control.sock";
  auto server = serve(boundary::UnixListener{path}, std::chrono::seconds{5});
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0660u);
  const isolation::FileDescriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(closed_within(fd.get(), 5'000));
  EXPECT_TRUE(is_own_descendant(::getpid()));
  EXPECT_FALSE(is_own_descendant(0)) << "another pid namespace: TLS and bearer decide";
  EXPECT_FALSE(is_own_descendant(::getppid()));
  EXPECT_TRUE(is_own_descendant(2'000'000'000)) << "what can not be looked up may be one";
  server.reset();
  ::unlink(path.c_str());
  ::rmdir(dir.c_str());
}

TEST(ChannelServerBounds, WhoSeesTheSocketIsNeverRefused) {
  char pattern[] = "/tmp/channel-test-XXXXXX";
  const std::string dir = ::mkdtemp(pattern), path = dir + "/control.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  int refused = 0, rounds = 0;
  for (; rounds < 50; ++rounds) {
    ::unlink(path.c_str());
    std::thread peer{[&] {  // as near as one gets to the moment at which the name appears
      for (;;) {
        const isolation::FileDescriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return;
        if (errno != ENOENT) ++refused;
      }
    }};
    const auto server = serve(boundary::UnixListener{path}, std::chrono::seconds{5});
    peer.join();
  }
  EXPECT_EQ(refused, 0) << "of " << rounds << " starts";
  ::unlink(path.c_str());
  ::rmdir(dir.c_str());
}

TEST(ChannelServerBounds, ThirtyTwoHandshakesThenTheNextIsClosedAndSilentOnesEndAtTheirDeadline) {  // RT-64, RT-65
  EXPECT_EQ(ChannelServer::kHandshakeDeadline, std::chrono::seconds{5});
  auto server = serve(boundary::TcpListener{"127.0.0.1:0"}, std::chrono::milliseconds{3'000});  // ample for 33 connects
  ASSERT_NE(server->port(), 0);
  std::vector<isolation::FileDescriptor> silent;
  for (std::size_t i = 0; i < ChannelServer::kMaxHandshakes; ++i) silent.push_back(connect_to(server->port()));
  const auto one_more = connect_to(server->port());
  EXPECT_TRUE(closed_within(one_more.get(), 2'500));
  EXPECT_FALSE(closed_within(silent.front().get(), 0));
  for (const auto& fd : silent) EXPECT_TRUE(closed_within(fd.get(), 20'000));
  bool room = false;  // the close is seen a moment before the place is free
  for (int i = 0; i < 50 && !room; ++i) room = !closed_within(connect_to(server->port()).get(), 100);
  EXPECT_TRUE(room);
}

/// Ends its call as soon as it starts.
class BriefStream final : public CallStream {
 public:
  void start(std::shared_ptr<Call> call) override { call->finish(CallEnd::done); }
  void received(std::string) override {}
  void received_end() override {}
  void written() override {}
  void ended() override {}
};

TEST(ChannelServerCalls, NothingOfACallStaysWhenItIsOver) {
  std::mutex mutex;
  std::vector<std::weak_ptr<Call>> calls;
  std::vector<std::weak_ptr<CallStream>> streams;
  std::vector<std::shared_ptr<Call>> unanswered;
  const auto certificates = *pki::make_session_certificates(SessionId{"1b671a64-40d5-491e-99b0-da01ff1f3341"});
  const test::TokenSigner signer;
  ChannelServer::Options options{{boundary::TcpListener{"127.0.0.1:0"}, {}},
                                 certificates.server_certificate,
                                 certificates.server_key,
                                 certificates.ca_certificate,
                                 *boundary::SessionTokenVerifier::make({{"k1", signer.public_pem()}}, {"gw", "sb", "g", 1})};
  const auto request = [&](std::shared_ptr<Call> call) {
    const std::lock_guard lock{mutex};
    calls.push_back(call);
    if (std::holds_alternative<boundary::DiscoverPolicy>(call->request()->envelope.request)) {
      call->respond(boundary::Terminated{});
    } else if (std::holds_alternative<boundary::Confirm>(call->request()->envelope.request)) {
      auto stream = std::make_shared<BriefStream>();
      streams.push_back(stream);
      call->respond(boundary::MediationReady{}, std::move(stream));
    } else {
      unanswered.push_back(std::move(call));
    }
  };
  auto server = *ChannelServer::start(std::move(options), {[](ConnectionNumber) {}, [](ConnectionNumber) {}, request});
  boundary::Descriptor descriptor;
  descriptor.transport = boundary::TcpTransport{"", {"127.0.0.1:" + std::to_string(server->port())}};
  descriptor.tls_server_name = certificates.server_name;
  descriptor.tls_trust_anchor_pem = certificates.ca_certificate;
  descriptor.tls_client_certificate_pem = certificates.client_certificate;
  descriptor.tls_client_private_key_pem = certificates.client_key;
  const auto now = static_cast<std::int64_t>(::time(nullptr));
  test::Client client{descriptor, signer.bearer({"gw", "sb", "g", 1, now, now + 600, test::new_uuid()})};

  constexpr std::size_t kOfEach = 20;
  for (std::size_t i = 0; i < kOfEach; ++i) {
    EXPECT_TRUE(std::holds_alternative<boundary::Terminated>(client.ask(boundary::DiscoverPolicy{})));
    auto streamed = client.open(boundary::Confirm{});
    EXPECT_TRUE(streamed->response());
    EXPECT_TRUE(streamed->finish().ok());
    auto cancelled = client.open(boundary::AcceptNetwork{});
    const auto waits = [&] {
      const std::lock_guard lock{mutex};
      return !unanswered.empty();
    };
    EXPECT_TRUE(test::eventually(20, waits));
    cancelled.reset();
    const std::lock_guard lock{mutex};
    unanswered.clear();
  }
  // RT-66: strangers who fill the pool of handshakes take nothing from who is known.
  std::vector<isolation::FileDescriptor> silent;
  for (std::size_t i = 0; i < ChannelServer::kMaxHandshakes; ++i) silent.push_back(connect_to(server->port()));
  EXPECT_TRUE(closed_within(connect_to(server->port()).get(), 1'000)) << "the pool is full";
  EXPECT_TRUE(std::holds_alternative<boundary::Terminated>(client.ask(boundary::DiscoverPolicy{})));
  silent.clear();
  // The connection is open still: each call went by its own end, none with the connection.
  const auto alive = [](const auto& all) { return std::count_if(all.begin(), all.end(), [](const auto& one) { return !one.expired(); }); };
  const std::lock_guard lock{mutex};  // nothing is added any more
  EXPECT_EQ(calls.size(), 3 * kOfEach + 1);
  EXPECT_EQ(streams.size(), kOfEach);
  EXPECT_TRUE(test::eventually(20, [&] { return alive(calls) == 0; })) << alive(calls) << " of " << calls.size() << " calls still exist";
  EXPECT_TRUE(test::eventually(20, [&] { return alive(streams) == 0; })) << alive(streams) << " streams still exist";
}

}  // namespace
}  // namespace openshell::sandbox
