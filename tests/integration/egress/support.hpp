// A real HTTP and HTTPS server in the test process, a workload that speaks through the engine, and what both saw.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "egress/credentials.hpp"
#include "egress/dns/message.hpp"
#include "egress/engine.hpp"
#include "pki/certificate.hpp"
#include "policy/matcher.hpp"
#include "policy/parse.hpp"

namespace openshell::egress::test {

inline constexpr auto kHost = "host.openshell.internal";  // leads to 127.0.0.1, where the test's servers are
inline constexpr auto kCurl = "/usr/bin/curl";
inline constexpr auto kPython = "/usr/bin/python3";

/// A blocking byte pipe: a socket, with TLS on it or not.
class Wire {
 public:
  explicit Wire(int fd) : fd_{fd} {}
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  /// Client handshake trusting `ca_pem` only, for `host`. Empty: it succeeded.
  std::string start_tls(const std::string& ca_pem, const std::string& host);
  bool accept_tls(SSL_CTX* context);
  bool write(std::string_view bytes);
  /// Empty: the end. `broken()` says whether it was a reset.
  std::string read();
  [[nodiscard]] bool broken() const { return broken_; }
  void end_writing();
  void reset();
  [[nodiscard]] std::string alpn() const;
  [[nodiscard]] bool resumed() const;
  [[nodiscard]] std::string peer_name() const;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
  SSL* ssl_ = nullptr;
  SSL_CTX* own_ = nullptr;
  bool broken_ = false;
};

struct Message {
  int status = 0;
  std::string head;
  std::string body;
  [[nodiscard]] bool has(const std::string& text) const {
    return head.find(text) != std::string::npos || body.find(text) != std::string::npos;
  }
};

/// Answers every request by its path; remembers what it was sent, byte for byte.
class Server {
 public:
  /// `identity` null: plain HTTP.
  explicit Server(const pki::Identity* identity = nullptr);
  ~Server();
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string seen() const;
  [[nodiscard]] int requests() const { return requests_; }
  [[nodiscard]] int resumed() const { return resumed_; }  ///< TLS sessions
  void release() { gate_.set_value(); }                   ///< lets `/slow` go on

 private:
  void accept_loop();
  void serve(int fd);
  void serve_websocket(Wire& wire, const std::string& path, const std::string& head);
  std::string respond(Wire& wire, const std::string& method, const std::string& path, const std::string& head, const std::string& body);

  int listener_ = -1;
  std::uint16_t port_ = 0;
  SSL_CTX* context_ = nullptr;
  std::thread acceptor_;
  std::vector<std::thread> workers_;
  std::vector<int> open_;
  mutable std::mutex mutex_;
  std::string seen_;
  std::atomic<int> requests_{0}, resumed_{0};
  std::promise<void> gate_;
  std::shared_future<void> gate_open_{gate_.get_future()};
};

/// Collects events.
class Events final : public EventSink {
 public:
  void emit(Event event) noexcept override;
  [[nodiscard]] std::vector<DenialEvent> denials() const;
  [[nodiscard]] std::vector<ActivityEvent> activities() const;
  /// Everything of every event in one text, to search for what must not be there.
  [[nodiscard]] std::string all_text() const;

 private:
  mutable std::mutex mutex_;
  std::vector<DenialEvent> denials_;
  std::vector<ActivityEvent> activities_;
  std::vector<EndpointObservation> observations_;
};

/// The engine with a sandbox CA and a CA of the outside world, and a workload beside it.
class World {
 public:
  explicit World(std::function<void(EngineOptions&)> change = nullptr);
  ~World();

  /// Publishes a policy given as YAML `network_policies`, with the current credentials.
  PublishReport publish(const std::string& yaml, std::function<void(Generation&)> change = nullptr);
  /// Installs credentials for the next publish; returns the placeholder of `key`.
  std::string install(const ProviderEnvironment& environment, const std::string& key);

  /// The answer to an A question: the address, or "rcode N", or "no data".
  std::string resolve(const std::string& name, std::uint16_t type = 1);
  std::optional<std::string> dns(DnsTransport transport, std::string message);

  struct Opened {
    std::unique_ptr<Wire> wire;  ///< null: denied
    OpenDenied denied;
  };
  Opened connect(const std::string& address, std::uint16_t port, const std::string& binary = kCurl);
  /// Resolves, then connects.
  Opened open(const std::string& name, std::uint16_t port, const std::string& binary = kCurl);
  /// `tcp`: the workload's end is a TCP socket, which can be reset.
  /// `prepared` runs when the workload's socket is made and nothing is asked yet.
  Opened open_intent(OpenIntent intent, bool tcp = false, const std::function<void()>& prepared = nullptr);

  Engine& engine() { return *engine_; }
  Events& events() { return *events_; }
  [[nodiscard]] std::string sandbox_ca() const { return sandbox_ca_->certificate().to_pem(); }
  [[nodiscard]] const std::string& outside_ca() const { return outside_ca_; }
  [[nodiscard]] const pki::Identity& server_identity() const { return *server_identity_; }
  CredentialLedger ledger;

 private:
  std::shared_ptr<const pki::CertificateAuthority> sandbox_ca_;
  std::string outside_ca_;
  std::unique_ptr<pki::Identity> server_identity_;
  std::shared_ptr<Events> events_ = std::make_shared<Events>();
  std::unique_ptr<Engine> engine_;
  CredentialLedger::Candidate credentials_;
  std::uint64_t generation_ = 0;
};

/// One message off the wire. `head_only` for answers to HEAD.
Message read_message(Wire& wire, bool head_only = false);
std::string get(const std::string& path, std::uint16_t port, const std::string& extra = {}, const std::string& method = "GET");
std::string digest_of(const std::string& path);

}  // namespace openshell::egress::test
