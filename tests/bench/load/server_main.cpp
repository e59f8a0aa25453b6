// The upstream of the request and throughput figures: `bench_server CERTIFICATE KEY` listens on three ports of 127.0.0.1, writes
// `<http> <https> <raw>` to stdout and serves until stdin ends. GET /small answers 64 bytes, GET /bytes/N answers N; the raw port takes
// nine bytes (a zero, then a length) and sends so many. A thread a connection: 64 of them at most.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>
#include <vector>

#include "tests/bench/load/connection.hpp"

namespace openshell::bench {
namespace {

constexpr std::size_t kChunk = 256 * 1024;

class Peer {
 public:
  Peer(int socket, SSL_CTX* context) : socket_{socket} {
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (context == nullptr) return;
    tls_ = SSL_new(context);
    SSL_set_fd(tls_, socket_);
    good_ = SSL_accept(tls_) == 1;
  }
  ~Peer() {
    if (tls_ != nullptr) SSL_free(tls_);
    close(socket_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  [[nodiscard]] bool good() const { return good_; }
  ssize_t take(char* buffer, std::size_t size) {
    return tls_ != nullptr ? SSL_read(tls_, buffer, static_cast<int>(size)) : recv(socket_, buffer, size, 0);
  }
  bool put(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = tls_ != nullptr ? static_cast<ssize_t>(SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size())))
                                     : send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool put_filler(std::uint64_t length) {
    static const std::string filler(kChunk, 'x');
    for (; length > 0; length -= std::min<std::uint64_t>(length, kChunk)) {
      if (!put(std::string_view{filler}.substr(0, std::min<std::uint64_t>(length, kChunk)))) return false;
    }
    return true;
  }

 private:
  int socket_;
  SSL* tls_ = nullptr;
  bool good_ = true;
};

void serve_http(Peer& peer) {
  std::string have;
  char buffer[4096];
  for (;;) {
    const auto end = have.find("\r\n\r\n");
    if (end == std::string::npos) {
      const ssize_t got = peer.take(buffer, sizeof buffer);
      if (got <= 0) return;
      have.append(buffer, static_cast<std::size_t>(got));
      continue;
    }
    const auto path = have.find("/bytes/");
    const std::uint64_t length = path < end ? std::strtoull(have.c_str() + path + 7, nullptr, 10) : 64;
    const bool close_after = have.find("Connection: close") < end;
    have.erase(0, end + 4);
    const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(length) +
                             (close_after ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n");
    const bool sent = length <= 4096 ? peer.put(head + std::string(length, 'x')) : peer.put(head) && peer.put_filler(length);
    if (!sent || close_after) return;
  }
}

void serve_raw(Peer& peer) {
  unsigned char order[9];
  std::size_t have = 0;
  while (have < sizeof order) {
    const ssize_t got = peer.take(reinterpret_cast<char*>(order) + have, sizeof order - have);
    if (got <= 0) return;
    have += static_cast<std::size_t>(got);
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | order[1 + i];
  peer.put_filler(length);
}

int listen_on_any_port(std::uint16_t& port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 512) != 0) fail("no port to listen on");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return listener;
}

void accept_for_ever(int listener, SSL_CTX* context, void (*serve)(Peer&)) {
  for (;;) {
    const int taken = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (taken < 0) continue;
    std::thread{[taken, context, serve] {
      Peer peer{taken, context};
      if (peer.good()) serve(peer);
    }}.detach();
  }
}

}  // namespace
}  // namespace openshell::bench

int main(int argc, char** argv) {
  using namespace openshell::bench;
  if (argc != 3) fail("usage: bench_server CERTIFICATE KEY");
  signal(SIGPIPE, SIG_IGN);
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  if (SSL_CTX_use_certificate_chain_file(context, argv[1]) != 1 || SSL_CTX_use_PrivateKey_file(context, argv[2], SSL_FILETYPE_PEM) != 1)
    fail("certificate or key can not be read");
  std::uint16_t http = 0, https = 0, raw = 0;
  const int http_listener = listen_on_any_port(http), https_listener = listen_on_any_port(https), raw_listener = listen_on_any_port(raw);
  std::thread{[=] { accept_for_ever(http_listener, nullptr, serve_http); }}.detach();
  std::thread{[=] { accept_for_ever(https_listener, context, serve_http); }}.detach();
  std::thread{[=] { accept_for_ever(raw_listener, nullptr, serve_raw); }}.detach();
  std::printf("%u %u %u\n", http, https, raw);
  std::fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  std::_Exit(0);
}
