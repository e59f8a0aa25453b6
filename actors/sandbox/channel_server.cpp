#include "actors/sandbox/channel_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "actors/sandbox/grpc_call.hpp"
#include "isolation/boundary/socket_passing.hpp"
#include "isolation/socket_address.hpp"
#include "isolation/unix_address.hpp"

#include <fmt/format.h>

namespace openshell::sandbox {

namespace asio = boost::asio;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Socket = Protocol::socket;

namespace {

constexpr std::size_t kPumpBytes = 16'384;  // one TLS record
constexpr int kBacklog = 64;

/// Both protocols in wire form (RFC 7301 3.1): h2, and the one of the hand-over connection.
const std::string& alpn() {
  static const std::string protocols =
      std::string{"\x02h2"} + static_cast<char>(boundary::kHandoverAlpn.size()) + std::string{boundary::kHandoverAlpn};
  return protocols;
}

int choose_alpn(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in, unsigned int in_length, void*) {
  unsigned char* chosen = nullptr;
  const auto* ours = reinterpret_cast<const unsigned char*>(alpn().data());
  if (SSL_select_next_proto(&chosen, out_length, ours, static_cast<unsigned>(alpn().size()), in, in_length) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

/// TLS 1.3 only, client certificate of the session CA required, no tickets, no early data.
absl::Status configure(asio::ssl::context& context, const ChannelServer::Options& options) {
  SSL_CTX* native = context.native_handle();
  error_code error;
  const auto failed = [&](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("channel TLS: {}: {}", what, error.message()));
  };
  if (SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION) != 1) return absl::InternalError("channel TLS: no TLS 1.3");
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(native, choose_alpn, nullptr);
  context.use_certificate_chain(asio::buffer(options.certificate_chain_pem), error);
  if (error) return failed("certificate chain");
  const std::string_view key = options.private_key_pem.reveal();
  context.use_private_key(asio::const_buffer(key.data(), key.size()), asio::ssl::context::pem, error);
  if (error) return failed("private key");
  context.add_certificate_authority(asio::buffer(options.client_ca_pem), error);
  if (error) return failed("client CA");
  context.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, error);
  if (error) return failed("verify mode");
  return absl::OkStatus();
}

struct Listening {
  int fd = -1;
  std::uint16_t port = 0;
};

/// The name appears only once the socket accepts: who sees the file and connects is never refused.
absl::StatusOr<Listening> listen_unix(const std::string& path) {
  const std::string unready = path + ".new";
  const auto address = isolation::unix_address(unready);
  if (!address.ok()) return address.status();
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "channel socket");
  ::unlink(unready.c_str());
  const mode_t old = ::umask(0117);  // 0660 from the first moment; before any other thread makes files
  const int bound = ::bind(fd, address->get(), address->length);
  const int why = errno;
  ::umask(old);
  if (bound != 0 || ::listen(fd, kBacklog) != 0 || ::rename(unready.c_str(), path.c_str()) != 0) {
    const auto status = absl::ErrnoToStatus(bound != 0 ? why : errno, fmt::format("listen on {}", path));
    ::close(fd);
    return status;
  }
  return Listening{fd, 0};
}

absl::StatusOr<Listening> listen_tcp(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const auto port = static_cast<std::uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10));
  const auto address = isolation::SocketAddress::parse(host, port);
  if (!address.ok()) return address.status();
  sockaddr_storage storage{};
  const socklen_t length = address->to_sockaddr(storage);
  const int fd = ::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "channel socket");
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0 || ::listen(fd, kBacklog) != 0) {
    const auto status = absl::ErrnoToStatus(errno, fmt::format("listen on {}", text));
    ::close(fd);
    return status;
  }
  sockaddr_in bound{};  // the port stands at the same place in both families
  socklen_t bound_length = sizeof storage;
  sockaddr_storage name{};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bound_length) != 0) return absl::ErrnoToStatus(errno, "getsockname");
  std::memcpy(&bound, &name, sizeof bound);
  return Listening{fd, ntohs(bound.sin_port)};
}

}  // namespace

bool is_own_descendant(pid_t pid) {
  if (pid == 0) return false;  // outside our namespace
  const pid_t self = ::getpid();
  for (int depth = 0; depth < 4'096; ++depth) {
    if (pid == self) return true;  // ourselves or below
    std::ifstream status{fmt::format("/proc/{}/status", pid)};
    std::string line;
    pid_t parent = -1;
    while (std::getline(status, line)) {
      if (line.rfind("PPid:", 0) == 0) parent = static_cast<pid_t>(std::strtol(line.c_str() + 5, nullptr, 10));
    }
    if (parent < 0) return true;  // unreadable: who may be one is one
    if (parent == 0) return false;
    pid = parent;
  }
  return true;
}

class ChannelServer::Impl : public std::enable_shared_from_this<ChannelServer::Impl> {
 public:
  Impl(Options options, Events events) : options_{std::move(options)}, events_{std::move(events)}, tls_{asio::ssl::context::tls_server} {}

  absl::Status start() {
    if (auto status = configure(tls_, options_); !status.ok()) return status;
    options_.private_key_pem = Secret{};
    absl::StatusOr<Listening> listening = absl::UnimplementedError("channel over vsock is not built");
    if (const auto* at = std::get_if<boundary::UnixListener>(&options_.listener.endpoint)) listening = listen_unix(at->socket_path);
    if (const auto* at = std::get_if<boundary::TcpListener>(&options_.listener.endpoint)) listening = listen_tcp(at->address);
    if (!listening.ok()) return listening.status();
    port_ = listening->port;
    listener_.emplace(io_, listening->fd);
    asio::co_spawn(io_, accept_loop(), asio::detached);
    thread_ = std::thread{[this] { io_.run(); }};
    return absl::OkStatus();
  }

  void stop() {
    asio::post(io_, [this] {
      stopping_ = true;
      error_code ignored;
      if (listener_) listener_->close(ignored);
      for (auto& [number, connection] : connections_) connection->close();
    });
    work_.reset();
    if (thread_.joinable()) thread_.join();
    reaper_.join();
  }

  void close(ConnectionNumber number) {
    asio::post(io_, [this, number] {
      const auto it = connections_.find(number);
      if (it != connections_.end()) it->second->close();
    });
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  using Stream = asio::ssl::stream<Socket>;

  /// One supervisor connection: TLS outside, a socketpair to gRPC inside. Lives on the channel's thread.
  struct Connection {
    Connection(Stream tls, Socket plain) : outside{std::move(tls)}, inside{std::move(plain)} {}
    Stream outside;
    Socket inside;
    std::unique_ptr<ConnectionServer> server;
    void close() {
      error_code ignored;
      outside.next_layer().close(ignored);
      inside.close(ignored);
    }
  };

  asio::awaitable<void> accept_loop() {
    asio::steady_timer pause{io_};
    for (;;) {
      error_code error;
      co_await listener_->async_wait(asio::posix::stream_descriptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
      if (error || stopping_) co_return;
      const int fd = ::accept4(listener_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {  // do not spin until something closes
          pause.expires_after(std::chrono::milliseconds{100});
          co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        }
        continue;
      }
      if (handshakes_ >= kMaxHandshakes || connections_.size() >= kMaxConnections || !may_speak(fd)) {
        ::close(fd);
        continue;
      }
      ++handshakes_;
      asio::co_spawn(io_, serve(fd), asio::detached);
    }
  }

  /// Before the first byte: a process of the workload is closed without one.
  bool may_speak(int fd) const {
    if (!std::holds_alternative<boundary::UnixListener>(options_.listener.endpoint)) return true;
    ucred peer{};
    socklen_t length = sizeof peer;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && !is_own_descendant(peer.pid);
  }

  asio::awaitable<void> serve(int fd) {
    const auto self = shared_from_this();
    const int family = std::holds_alternative<boundary::UnixListener>(options_.listener.endpoint) ? AF_UNIX : AF_INET;
    Stream stream{Socket{io_, Protocol{family, 0}, fd}, tls_};
    const auto protocol = co_await handshake(stream);
    --handshakes_;
    if (protocol == Spoken::kNone || stopping_ || connections_.size() >= kMaxConnections) co_return;
    if (protocol == Spoken::kHandover) {
      error_code error;
      if (family == AF_UNIX && events_.handover) events_.handover(isolation::FileDescriptor{stream.next_layer().release(error)});
      co_return;
    }
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) co_return;
    const ConnectionNumber number = ++last_number_;
    auto connection = std::make_shared<Connection>(std::move(stream), Socket{io_, Protocol{AF_UNIX, 0}, pair[0]});
    connections_.emplace(number, connection);
    events_.opened(number);
    connection->server = serve_connection(number, pair[1], options_.verifier, events_);
    if (connection->server) {
      using namespace asio::experimental::awaitable_operators;
      co_await (pump_in(*connection) && pump_out(*connection));  // the first to end closes both sockets, which ends the other
    } else {
      ::close(pair[1]);
    }
    connection->close();
    connections_.erase(number);
    events_.closed(number);
    // gRPC's shutdown waits for the calls' last reactions: not on this thread.
    asio::post(reaper_, [connection]() mutable { connection->server.reset(); });
  }

  enum class Spoken : std::uint8_t { kNone, kGrpc, kHandover };

  /// kNone: it failed.
  asio::awaitable<Spoken> handshake(Stream& stream) {
    error_code error;
    asio::steady_timer deadline{io_, options_.handshake_deadline};
    bool late = false;
    deadline.async_wait([&](const error_code& cancelled) {
      if (cancelled) return;
      late = true;
      error_code ignored;
      stream.next_layer().close(ignored);
    });
    co_await stream.async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, error));
    deadline.cancel();
    // The cancelled wait refers to this frame: let it pass before the frame goes.
    co_await asio::post(io_, asio::use_awaitable);
    const unsigned char* protocol = nullptr;
    unsigned int length = 0;
    SSL_get0_alpn_selected(stream.native_handle(), &protocol, &length);
    if (error || late || length == 0) co_return Spoken::kNone;
    const std::string_view chosen{reinterpret_cast<const char*>(protocol), length};
    co_return chosen == boundary::kHandoverAlpn ? Spoken::kHandover : Spoken::kGrpc;
  }

  asio::awaitable<void> pump_in(Connection& connection) {
    std::array<char, kPumpBytes> buffer;
    error_code error;
    for (;;) {
      const std::size_t n =
          co_await connection.outside.async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      co_await asio::async_write(connection.inside, asio::buffer(buffer, n), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
    }
    connection.close();
  }

  asio::awaitable<void> pump_out(Connection& connection) {
    std::array<char, kPumpBytes> buffer;
    error_code error;
    for (;;) {
      const std::size_t n =
          co_await connection.inside.async_read_some(asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      co_await asio::async_write(connection.outside, asio::buffer(buffer, n), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
    }
    connection.close();
  }

  Options options_;
  Events events_;
  asio::io_context io_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_{asio::make_work_guard(io_)};
  asio::ssl::context tls_;
  std::optional<asio::posix::stream_descriptor> listener_;
  std::map<ConnectionNumber, std::shared_ptr<Connection>> connections_;
  ConnectionNumber last_number_ = 0;
  std::size_t handshakes_ = 0;
  bool stopping_ = false;
  std::uint16_t port_ = 0;
  asio::thread_pool reaper_{1};
  std::thread thread_;
};

ChannelServer::ChannelServer(std::shared_ptr<Impl> impl) : impl_{std::move(impl)} {}
ChannelServer::~ChannelServer() { impl_->stop(); }
void ChannelServer::close(ConnectionNumber connection) { impl_->close(connection); }
std::uint16_t ChannelServer::port() const { return impl_->port(); }

absl::StatusOr<std::unique_ptr<ChannelServer>> ChannelServer::start(Options options, Events events) {
  auto impl = std::make_shared<Impl>(std::move(options), std::move(events));
  if (auto status = impl->start(); !status.ok()) return status;
  return std::unique_ptr<ChannelServer>{new ChannelServer{std::move(impl)}};
}

}  // namespace openshell::sandbox
