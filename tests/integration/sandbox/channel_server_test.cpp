// The listening end of the channel alone: who may speak at all, and how long, before TLS is done.
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

#include <vector>

#include "isolation/file_descriptor.hpp"
#include "pki/session.hpp"

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

TEST(ChannelServerBounds, RT_12_AProcessOfOurOwnIsClosedWithoutAByte) {
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

TEST(ChannelServerBounds, ThirtyTwoHandshakesThenTheNextIsClosedAndSilentOnesEndAtTheirDeadline) {
  auto server = serve(boundary::TcpListener{"127.0.0.1:0"}, std::chrono::milliseconds{1'500});
  ASSERT_NE(server->port(), 0);
  std::vector<isolation::FileDescriptor> silent;
  for (std::size_t i = 0; i < ChannelServer::kMaxHandshakes; ++i) silent.push_back(connect_to(server->port()));
  const auto one_more = connect_to(server->port());
  EXPECT_TRUE(closed_within(one_more.get(), 1'000));
  EXPECT_FALSE(closed_within(silent.front().get(), 0));
  for (const auto& fd : silent) EXPECT_TRUE(closed_within(fd.get(), 5'000));
  bool room = false;  // the close is seen a moment before the place is free
  for (int i = 0; i < 50 && !room; ++i) room = !closed_within(connect_to(server->port()).get(), 100);
  EXPECT_TRUE(room);
}

}  // namespace
}  // namespace openshell::sandbox
