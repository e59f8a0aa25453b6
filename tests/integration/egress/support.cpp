#include "tests/integration/egress/support.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "egress/http/head.hpp"
#include "egress/websocket/frame.hpp"
#include "egress/websocket/handshake.hpp"

namespace openshell::egress::test {
namespace {

constexpr int kTestTimeoutSeconds = 30;  // of any single read: a test that hangs fails instead

std::string field(const std::string& head, const std::string& name) {
  const auto at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return {};
  const auto from = at + name.size() + 4;
  return head.substr(from, head.find("\r\n", from) - from);
}

void set_timeout(int fd) {
  const timeval limit{kTestTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void tcp_pair(int (&pair)[2]) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address);
  listen(listener, 1);
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(pair[0], reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  pair[1] = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  close(listener);
}

}  // namespace

Wire::~Wire() {
  if (ssl_ != nullptr) SSL_free(ssl_);
  if (own_ != nullptr) SSL_CTX_free(own_);
  close(fd_);
}

std::string Wire::start_tls(const std::string& ca_pem, const std::string& host) {
  own_ = SSL_CTX_new(TLS_client_method());
  const auto ca = pki::Certificate::from_pem(ca_pem);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(own_), ca->native());
  SSL_CTX_set_verify(own_, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(own_, reinterpret_cast<const unsigned char*>("\x02h2\x08http/1.1"), 12);
  ssl_ = SSL_new(own_);
  SSL_set1_host(ssl_, host.c_str());
  SSL_set_tlsext_host_name(ssl_, host.c_str());
  SSL_set_fd(ssl_, fd_);
  if (SSL_connect(ssl_) == 1) return {};
  const auto verdict = SSL_get_verify_result(ssl_);
  return verdict == X509_V_OK ? "handshake failed" : X509_verify_cert_error_string(verdict);
}

bool Wire::accept_tls(SSL_CTX* context) {
  ssl_ = SSL_new(context);
  SSL_set_fd(ssl_, fd_);
  return SSL_accept(ssl_) == 1;
}

bool Wire::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = ssl_ != nullptr ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                                       : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string Wire::read() {
  std::string out(65536, '\0');
  const auto count = ssl_ != nullptr ? SSL_read(ssl_, out.data(), static_cast<int>(out.size())) : ::recv(fd_, out.data(), out.size(), 0);
  if (count <= 0) {
    broken_ = ssl_ != nullptr ? SSL_get_error(ssl_, static_cast<int>(count)) != SSL_ERROR_ZERO_RETURN : count < 0;
    return {};
  }
  out.resize(static_cast<std::size_t>(count));
  return out;
}

void Wire::end_writing() {
  if (ssl_ != nullptr) SSL_shutdown(ssl_);
  shutdown(fd_, SHUT_WR);
}

void Wire::reset() {
  const linger hard{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

std::string Wire::alpn() const {
  const unsigned char* name = nullptr;
  unsigned int length = 0;
  SSL_get0_alpn_selected(ssl_, &name, &length);
  return {reinterpret_cast<const char*>(name), length};
}

bool Wire::resumed() const { return SSL_session_reused(ssl_) == 1; }

std::string Wire::peer_name() const { return pki::Certificate::share(SSL_get0_peer_certificate(ssl_)).common_name(); }

Message read_message(Wire& wire, bool head_only) {
  Message out;
  std::string bytes;
  std::size_t end = std::string::npos;
  while ((end = bytes.find("\r\n\r\n")) == std::string::npos) {
    const auto more = wire.read();
    if (more.empty()) return out;
    bytes += more;
  }
  out.head = bytes.substr(0, end + 4);
  out.body = bytes.substr(end + 4);
  if (out.head.size() > 12) out.status = std::atoi(out.head.c_str() + 9);
  if (out.status / 100 == 1 || head_only) return out;
  const auto length = field(out.head, "Content-Length");
  const bool chunked = !field(out.head, "Transfer-Encoding").empty();
  while (chunked ? !(out.body.ends_with("\r\n\r\n") && ("\r\n" + out.body).find("\r\n0\r\n") != std::string::npos)
                 : length.empty() || out.body.size() < std::stoul(length)) {
    const auto more = wire.read();
    if (more.empty()) break;
    out.body += more;
  }
  return out;
}

std::string get(const std::string& path, std::uint16_t port, const std::string& extra, const std::string& method) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\n{}\r\n", method, path, kHost, port, extra);
}

std::string digest_of(const std::string& path) {
  // Not the file's: any 64 hex digits that belong to the path alone will do for the pins.
  return fmt::format("{:064x}", std::hash<std::string>{}(path));
}

Server::Server(const pki::Identity* identity) {
  std::signal(SIGPIPE, SIG_IGN);
  if (identity != nullptr) {
    context_ = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context_, identity->certificate.native());
    SSL_CTX_use_PrivateKey(context_, identity->key.native());
  }
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  listen(listener_, 64);
  socklen_t size = sizeof address;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread{[this] { accept_loop(); }};
}

Server::~Server() {
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock{mutex_};
    for (const int fd : open_) shutdown(fd, SHUT_RDWR);
  }
  for (auto& worker : workers_) worker.join();
  close(listener_);
  if (context_ != nullptr) SSL_CTX_free(context_);
}

std::string Server::seen() const {
  const std::lock_guard lock{mutex_};
  return seen_;
}

void Server::accept_loop() {
  while (true) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    set_timeout(fd);
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &yes, sizeof yes);
    const std::lock_guard lock{mutex_};
    open_.push_back(fd);
    workers_.emplace_back([this, fd] { serve(fd); });
  }
}

void Server::serve(int fd) {
  Wire wire{fd};
  if (context_ != nullptr && !wire.accept_tls(context_)) {
    const std::lock_guard lock{mutex_};
    std::erase(open_, fd);
    return;
  }
  if (context_ != nullptr && wire.resumed()) ++resumed_;
  while (true) {
    const auto request = read_message(wire, true);
    if (request.head.empty()) break;
    auto body = request.body;
    const auto length = field(request.head, "Content-Length");
    const bool chunked = !field(request.head, "Transfer-Encoding").empty();
    if (!field(request.head, "Expect").empty()) wire.write("HTTP/1.1 100 Continue\r\n\r\n");
    while (chunked ? !body.ends_with("0\r\n\r\n") : !length.empty() && body.size() < std::stoul(length)) {
      const auto more = wire.read();
      if (more.empty()) break;
      body += more;
    }
    {
      const std::lock_guard lock{mutex_};
      seen_ += request.head + body;
    }
    ++requests_;
    const auto first = request.head.find(' ');
    const auto second = request.head.find(' ', first + 1);
    const auto answer =
        respond(wire, request.head.substr(0, first), request.head.substr(first + 1, second - first - 1), request.head, body);
    if (!answer.empty() && !wire.write(answer)) break;
    if (answer.empty() || answer.find("Connection: close") != std::string::npos) break;
  }
  const std::lock_guard lock{mutex_};
  std::erase(open_, fd);
}

std::string Server::respond(Wire& wire, const std::string& method, const std::string& path, const std::string& head,
                            const std::string& body) {
  const auto plain = [](const std::string& text) {
    return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", text.size(), text);
  };
  if (method == "HEAD") return "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
  if (path == "/chunked") return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
  if (path == "/close") return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end";
  if (path == "/cut") {
    wire.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
    return {};
  }
  if (path == "/garbage") return "220 smtp ready\r\nConnection: close\r\n\r\n";
  if (path == "/sse")
    return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: "
           "{\"jsonrpc\":\"2.0\",\"method\":\"sampling/createMessage\"}\n\n";
  if (path == "/two") return plain("first") + plain("nobody asked");
  if (path == "/echo-header")
    return fmt::format("HTTP/1.1 200 OK\r\nX-Echo: {}\r\nContent-Length: 2\r\n\r\nok", field(head, "Authorization"));
  if (path == "/slow") {
    wire.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    gate_open_.wait_for(std::chrono::seconds{kTestTimeoutSeconds});
    return "there";
  }
  if (path == "/hang") {
    gate_open_.wait_for(std::chrono::seconds{kTestTimeoutSeconds});
    return {};
  }
  if (path == "/switch") return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
  if (path.starts_with("/ws")) {
    serve_websocket(wire, path, head);
    return {};
  }
  if (path.starts_with("/big")) return plain(std::string(8 << 20, 'b'));
  return plain(method + " " + path + " " + std::to_string(body.size()));
}

/// Says back what it reads; notes each text in `seen`.
void Server::serve_websocket(Wire& wire, const std::string& path, const std::string& head) {
  auto request = http::parse_request_head(head.substr(0, head.find("\r\n\r\n") + 4));
  if (!request.ok() || !websocket::is_upgrade(*request)) return;
  auto accept = websocket::restrict_offer(*request).accept;
  if (path == "/ws/liar") accept[0] = accept[0] == 'A' ? 'B' : 'A';
  wire.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept +
             "\r\n\r\n" +
             (path == "/ws/greets" ? std::string("\x81\x05"
                                                 "hello")
                                   : std::string{}));
  websocket::ClientFrames frames;
  for (auto bytes = wire.read(); !bytes.empty(); bytes = wire.read()) {
    frames.append(bytes);
    while (auto piece = frames.next()) {
      {
        const std::lock_guard lock{mutex_};
        seen_ += "<" + piece->bytes + ">";
      }
      if (piece->kind == websocket::Piece::Kind::text)
        wire.write(std::string{'\x81', static_cast<char>(piece->bytes.size())} + piece->bytes);  // short ones
      if (piece->kind == websocket::Piece::Kind::close) {
        wire.write(std::string("\x88\x02\x03\xe8", 4));
        wire.end_writing();
      }
    }
  }
}

void Events::emit(Event event) noexcept {
  const std::lock_guard lock{mutex_};
  if (auto* denial = std::get_if<DenialEvent>(&event)) denials_.push_back(std::move(*denial));
  if (auto* activity = std::get_if<ActivityEvent>(&event)) activities_.push_back(std::move(*activity));
  if (auto* seen = std::get_if<EndpointObservation>(&event)) observations_.push_back(std::move(*seen));
}

std::vector<DenialEvent> Events::denials() const {
  const std::lock_guard lock{mutex_};
  return denials_;
}

std::vector<ActivityEvent> Events::activities() const {
  const std::lock_guard lock{mutex_};
  return activities_;
}

std::string Events::all_text() const {
  std::string out;
  for (const auto& event : activities()) {
    out += event.message + "|" + event.path + "|" + event.status_detail + "|" + event.rule_type + "\n";
    for (const auto& [key, value] : event.fields) out += key + "=" + value + "\n";
  }
  for (const auto& denial : denials()) out += denial.reason + "|" + denial.host + "\n";
  return out;
}

World::World(std::function<void(EngineOptions&)> change) {
  const auto make = [](const char* name) { return pki::CertificateAuthority::create({name, "Test", pki::KeyKind::kP256}); };
  sandbox_ca_ = std::make_shared<const pki::CertificateAuthority>(*make("OpenShell Sandbox CA"));
  const auto outside = make("Outside CA");
  server_identity_ = std::make_unique<pki::Identity>(*outside->issue(pki::server_profile(kHost), pki::KeyKind::kP256));
  outside_ca_ = outside->certificate().to_pem();
  EngineOptions options;
  options.ca = sandbox_ca_;
  options.use_system_roots = false;
  options.additional_ca_bundle_pem = outside_ca_;
  options.resolvers = {"127.0.0.1:9"};  // nothing answers there: no test asks the world
  if (change) change(options);
  auto engine = Engine::create(std::move(options), events_);
  EXPECT_TRUE(engine.ok()) << engine.status();
  engine_ = std::move(*engine);
}

World::~World() { engine_->shutdown(); }

std::string World::install(const ProviderEnvironment& environment, const std::string& key) {
  auto candidate = ledger.prepare(environment);
  EXPECT_TRUE(candidate.ok()) << candidate.status();
  credentials_ = *candidate;
  ledger.commit(credentials_);
  return credentials_.child_env[key];
}

PublishReport World::publish(const std::string& yaml, std::function<void(Generation&)> change) {
  auto loaded = policy::load_policy("version: 1\nnetwork_policies:\n" + yaml, "test.yaml");
  auto generation = std::make_shared<Generation>();
  generation->number = ++generation_;
  if (loaded.ok()) {
    auto matcher = policy::Matcher::compile(*loaded.policy);
    EXPECT_TRUE(matcher.ok()) << matcher.status();
    generation->matcher = *matcher;
  } else {
    ADD_FAILURE() << loaded.diagnostics.render();
  }
  generation->credentials = credentials_.table;
  generation->host_gateway_ip = *IpAddress::parse("127.0.0.1");
  if (change) change(*generation);
  std::promise<PublishReport> report;
  engine_->publish(generation, [&](PublishReport given) { report.set_value(given); });
  return report.get_future().get();
}

std::optional<std::string> World::dns(DnsTransport transport, std::string message) {
  std::promise<std::optional<std::string>> answer;
  engine_->answer(transport, std::move(message), [&](std::optional<std::string> given) { answer.set_value(std::move(given)); });
  return answer.get_future().get();
}

std::string World::resolve(const std::string& name, std::uint16_t type) {
  const auto question = egress::dns::build_question(7, name, type);
  EXPECT_TRUE(question.ok());
  const auto answer = dns(DnsTransport::kUdp, *question);
  if (!answer) return "no answer";
  const int rcode = (*answer)[3] & 15;
  if (rcode != 0) return fmt::format("rcode {}", rcode);
  std::string asked = name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
  for (char& c : asked) c = static_cast<char>(std::tolower(c));
  const auto reply = egress::dns::parse_reply(*answer, 7, asked, type);
  if (!reply.ok()) return std::string{reply.status().message()};
  return reply->addresses.empty() ? "no data" : reply->addresses.front().str();
}

World::Opened World::open_intent(OpenIntent intent, bool tcp, const std::function<void()>& prepared) {
  int pair[2];
  if (tcp) {
    tcp_pair(pair);
  } else {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  }
  set_timeout(pair[0]);
  if (prepared) prepared();
  std::promise<OpenDecision> decision;
  engine_->open(std::move(intent), make_socket_stream(*engine_, pair[1]),
                [&](OpenDecision given) { decision.set_value(std::move(given)); });
  const auto given = decision.get_future().get();
  Opened out;
  out.wire = std::make_unique<Wire>(pair[0]);
  if (const auto* denied = std::get_if<OpenDenied>(&given)) {
    out.denied = *denied;
    out.wire.reset();
  }
  return out;
}

World::Opened World::connect(const std::string& address, std::uint16_t port, const std::string& binary) {
  OpenIntent intent;
  intent.address = *IpAddress::parse(address);
  intent.port = Port{port};
  ResolvedIdentity identity;
  identity.executable = {binary, digest_of(binary)};
  identity.ancestors = {{"/bin/bash", digest_of("/bin/bash")}};
  intent.identity = identity;
  return open_intent(std::move(intent));
}

World::Opened World::open(const std::string& name, std::uint16_t port, const std::string& binary) {
  const auto address = resolve(name);
  if (!IpAddress::parse(address).ok()) {
    ADD_FAILURE() << name << ": " << address;
    return {};
  }
  return connect(address, port, binary);
}

}  // namespace openshell::egress::test
