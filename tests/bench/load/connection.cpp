#include "tests/bench/load/connection.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace openshell::bench {
namespace {

constexpr std::size_t kHeadBytes = 16 * 1024;
constexpr std::size_t kBodyBytes = 256 * 1024;

std::uint64_t content_length(std::string_view head) {
  constexpr std::string_view kName = "\r\ncontent-length:";
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  const auto at = std::search(head.begin(), head.end(), kName.begin(), kName.end(), same);
  if (at == head.end()) fail("an answer without Content-Length: " + std::string(head.substr(0, 200)));
  return std::strtoull(&*at + kName.size(), nullptr, 10);
}

}  // namespace

void fail(const std::string& what) {
  std::fprintf(stderr, "bench: %s\n", what.c_str());
  std::_Exit(1);
}

Url parse_url(const std::string& text) {
  Url url;
  const auto scheme = text.find("://");
  if (scheme == std::string::npos) fail("no URL: " + text);
  url.tls = text.substr(0, scheme) == "https";
  const std::string rest = text.substr(scheme + 3);
  const auto slash = rest.find('/');
  const std::string authority = rest.substr(0, slash);
  url.path = slash == std::string::npos ? "/" : rest.substr(slash);
  const auto colon = authority.rfind(':');
  if (colon == std::string::npos) fail("the URL needs a port: " + text);
  url.host = authority.substr(0, colon);
  url.port = authority.substr(colon + 1);
  return url;
}

Target resolve(const Url& url, const std::string& proxy) {
  Target target{url, proxy};
  const auto colon = proxy.rfind(':');
  const std::string host = proxy.empty() ? url.host : proxy.substr(0, colon), port = proxy.empty() ? url.port : proxy.substr(colon + 1);
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) fail(host + ": " + gai_strerror(error));
  std::memcpy(&target.address, found->ai_addr, found->ai_addrlen);
  target.address_size = found->ai_addrlen;
  freeaddrinfo(found);
  return target;
}

std::shared_ptr<SSL_CTX> client_context(const std::string& ca_file) {
  std::shared_ptr<SSL_CTX> context{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  const bool ok = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context.get()) == 1
                                  : SSL_CTX_load_verify_locations(context.get(), ca_file.c_str(), nullptr) == 1;
  if (!ok) fail("the CA bundle can not be read: " + ca_file);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

Connection::Connection(const Target& target, SSL_CTX* context) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&target.address), target.address_size) != 0)
    fail("connect to " + target.url.authority() + ": " + std::strerror(errno));
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!target.url.tls) return;
  if (!target.proxy.empty()) tunnel(target);
  tls_ = SSL_new(context);
  SSL_set_fd(tls_, socket_);
  SSL_set_tlsext_host_name(tls_, target.url.host.c_str());
  SSL_set1_host(tls_, target.url.host.c_str());
  if (SSL_connect(tls_) != 1) {
    std::array<char, 256> text{};
    ERR_error_string_n(ERR_get_error(), text.data(), text.size());
    fail("TLS with " + target.url.authority() + ": " + text.data());
  }
}

Connection::~Connection() {
  if (tls_ != nullptr) SSL_free(tls_);
  // Reset instead of TIME_WAIT, of which a run would leave more than there are ports.
  const linger abort{1, 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  close(socket_);
}

void Connection::tunnel(const Target& target) {
  send_all("CONNECT " + target.url.authority() + " HTTP/1.1\r\nHost: " + target.url.authority() + "\r\n\r\n");
  std::string head;
  std::array<char, 1024> buffer;
  while (head.find("\r\n\r\n") == std::string::npos) {
    const std::size_t got = receive(buffer.data(), buffer.size());
    if (got == 0) fail("the proxy closed");
    head.append(buffer.data(), got);
  }
  if (head.find(" 200 ") == std::string::npos) fail("the proxy answers: " + head.substr(0, 100));
}

void Connection::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = tls_ != nullptr ? static_cast<ssize_t>(SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size())))
                                   : send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) fail(std::string("send: ") + std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::size_t Connection::receive(char* buffer, std::size_t size) {
  const auto n = tls_ != nullptr ? static_cast<ssize_t>(SSL_read(tls_, buffer, static_cast<int>(size))) : recv(socket_, buffer, size, 0);
  if (n < 0) fail(std::string("receive: ") + std::strerror(errno));
  return static_cast<std::size_t>(n);
}

std::uint64_t Connection::get(std::string_view request) {
  send_all(request);
  std::array<char, kHeadBytes> head;
  std::size_t have = 0, end = std::string_view::npos;
  while (end == std::string_view::npos) {
    const std::size_t got = receive(head.data() + have, head.size() - have);
    if (got == 0) fail("the connection ended before an answer");
    have += got;
    end = std::string_view{head.data(), have}.find("\r\n\r\n");
    if (have == head.size() && end == std::string_view::npos) fail("the head of the answer is too long");
  }
  const std::string_view text{head.data(), end + 4};
  if (text.substr(8, 5) != " 200 ") fail("answer: " + std::string(text.substr(0, 200)));
  const std::uint64_t length = content_length(text);
  std::uint64_t body = have - text.size();
  static thread_local const std::unique_ptr<std::array<char, kBodyBytes>> sink = std::make_unique<std::array<char, kBodyBytes>>();
  while (body < length) {
    const std::size_t got = receive(sink->data(), sink->size());
    if (got == 0) fail("the body ended early");
    body += got;
  }
  return length;
}

std::string request_text(const Target& target, bool keep_alive) {
  const std::string shown =
      !target.proxy.empty() && !target.url.tls ? "http://" + target.url.authority() + target.url.path : target.url.path;
  return "GET " + shown + " HTTP/1.1\r\nHost: " + target.url.authority() + "\r\nUser-Agent: bench\r\nAccept: */*\r\n" +
         (keep_alive ? "" : "Connection: close\r\n") + "\r\n";
}

}  // namespace openshell::bench
