// One blocking client connection of the load clients: plain or TLS, straight or through an HTTP proxy. Kept small and without allocation on
// the measured path, so that what is measured is the peer.
#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace openshell::bench {

/// `http://host:port/path` or `https://...`, taken apart.
struct Url {
  bool tls = false;
  std::string host, port, path;
  [[nodiscard]] std::string authority() const { return host + ":" + port; }
};
/// Ends the process with a message where the text is no such URL.
Url parse_url(const std::string& text);

/// Where to connect to: looked up once, since the lookup is not what is measured.
struct Target {
  Url url;
  std::string proxy;  ///< `host:port`, or empty.
  sockaddr_storage address{};
  socklen_t address_size = 0;
};
Target resolve(const Url& url, const std::string& proxy);

/// Trusts the system's bundle (SSL_CERT_FILE is honoured) or the given file.
std::shared_ptr<SSL_CTX> client_context(const std::string& ca_file);

/// A failed step ends the process: a load client that goes on after an error measures errors.
[[noreturn]] void fail(const std::string& what);

class Connection {
 public:
  /// Connects, asks the proxy for a tunnel where TLS goes through one, and does the handshake.
  Connection(const Target& target, SSL_CTX* context);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send_all(std::string_view bytes);
  /// At least one byte; 0 at the end.
  std::size_t receive(char* buffer, std::size_t size);
  /// One GET; its answer must be 200 with a Content-Length. Returns the length of the body, which is read and dropped.
  std::uint64_t get(std::string_view request);

 private:
  void tunnel(const Target& target);
  int socket_ = -1;
  SSL* tls_ = nullptr;
};

/// The bytes of a GET for this target, keep-alive or not.
std::string request_text(const Target& target, bool keep_alive);

}  // namespace openshell::bench
