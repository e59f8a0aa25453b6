#include "api/front.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <map>
#include <mutex>
#include <thread>

#include "api/client_hello.hpp"
#include "api/http_session.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using local = asio::local::stream_protocol;
using boost::system::error_code;

constexpr int kBacklog = 1024;
constexpr std::size_t kRelayBytes = 64 * 1024;  // one buffer for the whole thread: idle connections hold none

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

/// Who is behind each connection that was passed to gRPC, by the name its end of the Unix connection is bound to. A name is never used
/// twice.
class Callers {
 public:
  void add(const std::string& name, const std::string& address) {
    const std::lock_guard lock{mutex_};
    addresses_[name] = address;
  }
  void remove(const std::string& name) {
    const std::lock_guard lock{mutex_};
    addresses_.erase(name);
  }
  std::string find(const std::string& peer) const {
    constexpr std::string_view kPrefix = "unix-abstract:";
    if (!peer.starts_with(kPrefix)) return peer;
    const std::lock_guard lock{mutex_};
    const auto found = addresses_.find(peer.substr(kPrefix.size()));
    return found == addresses_.end() ? peer : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> addresses_;
};

/// Binds to an abstract name that nobody else has; another process may hold one, then the next number is taken.
std::string bind_unique_name(int fd, std::uint64_t& counter) {
  while (true) {
    const std::string name = cat("openshell-", ::getpid(), "-", ++counter);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return name;
    if (errno != EADDRINUSE) return {};
  }
}

class AsioFront final : public Front {
 public:
  explicit AsioFront(FrontOptions options) : options_{std::move(options)}, acceptor_{io_} {}
  ~AsioFront() override { close(); }

  absl::Status listen() {
    if (options_.tls) {
      tls_ = http_tls_context(*options_.tls);
      if (!tls_) return absl::FailedPreconditionError("TLS certificate and key can not be used together");
    }
    if (auto error = bind_to(acceptor_, options_.address, options_.port)) {
      return absl::UnavailableError(cat("failed to bind to ", options_.address, ":", options_.port, ": ", error.message()));
    }
    return absl::OkStatus();
  }

  absl::Status add_http(const std::string& what, const std::string& address, std::uint16_t port, HttpHandler handler) override {
    auto acceptor = std::make_unique<tcp::acceptor>(io_);
    if (auto error = bind_to(*acceptor, address, port))
      return absl::UnavailableError(cat("failed to bind ", what, " ", address, ":", port, ": ", error.message()));
    extra_.push_back({std::move(acceptor), std::move(handler)});
    return absl::OkStatus();
  }

  void open() override {
    asio::co_spawn(io_, accept_loop(), asio::detached);
    for (auto& listener : extra_) asio::co_spawn(io_, accept_http(*listener.acceptor, listener.handler), asio::detached);
    thread_ = std::thread{[this] { io_.run(); }};
  }

  std::uint16_t port() const override {
    error_code error;
    return acceptor_.local_endpoint(error).port();
  }
  std::string caller_address(const std::string& peer) const override { return callers_.find(peer); }

  void stop_accepting() override {
    asio::post(io_, [this] {
      error_code error;
      acceptor_.close(error);
      for (auto& listener : extra_) listener.acceptor->close(error);
    });
  }

  void close() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Listener {
    std::unique_ptr<tcp::acceptor> acceptor;
    HttpHandler handler;
  };

  static error_code bind_to(tcp::acceptor& acceptor, const std::string& address, std::uint16_t port) {
    error_code error;
    const tcp::endpoint endpoint{asio::ip::make_address(address, error), port};
    // Asio would make it without close-on-exec, and this process starts others.
    if (!error)
      acceptor.assign(endpoint.protocol(), ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(kBacklog, error);
    return error;
  }

  /// The next connection, or nothing once the acceptor is closed. Running out of descriptors only costs the newcomers.
  asio::awaitable<std::optional<tcp::socket>> accept(tcp::acceptor& acceptor) {
    while (acceptor.is_open()) {
      error_code error;
      co_await acceptor.async_wait(tcp::acceptor::wait_read, into(error));
      if (error == asio::error::operation_aborted) break;
      const int fd = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        tcp::socket socket{io_};
        socket.assign(acceptor.local_endpoint(error).protocol(), fd, error);
        socket.set_option(tcp::no_delay(true), error);
        co_return std::move(socket);
      }
      if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) continue;
      asio::steady_timer pause{io_, std::chrono::milliseconds{50}};
      co_await pause.async_wait(into(error));
    }
    co_return std::nullopt;
  }

  asio::awaitable<void> accept_loop() {
    while (auto socket = co_await accept(acceptor_)) {
      if (opening_ >= kMaxOpeningConnections) continue;
      asio::co_spawn(io_, connection(std::move(*socket)), asio::detached);
    }
  }

  asio::awaitable<void> accept_http(tcp::acceptor& acceptor, HttpHandler handler) {
    while (auto socket = co_await accept(acceptor)) asio::co_spawn(io_, serve_http(std::move(*socket), handler), asio::detached);
  }

  asio::awaitable<void> connection(tcp::socket socket) {
    ++opening_;
    const Opening opening = co_await look(socket);
    --opening_;
    switch (opening) {
      case Opening::kGrpcTls:
        if (tls_) co_await pass_to_grpc(std::move(socket));
        co_return;
      case Opening::kHttp2:
        if (!tls_) co_await pass_to_grpc(std::move(socket));
        co_return;
      case Opening::kHttpTls:
        if (tls_) co_await serve_https(std::move(socket), *tls_, options_.http);
        co_return;
      case Opening::kHttp1:
        // Plaintext on a TLS port is dropped without an answer: nothing here may teach a client to go on without TLS.
        if (!tls_) co_await serve_http(std::move(socket), options_.http);
        co_return;
      case Opening::kUnknown:
      case Opening::kNeedMore:
        co_return;
    }
  }

  /// Peeks until the kind is known, the bound is reached or the time is up.
  asio::awaitable<Opening> look(tcp::socket& socket) {
    error_code error;
    socket.non_blocking(true, error);
    asio::steady_timer limit{io_, std::chrono::seconds{kOpeningSeconds}};
    const auto looking = std::make_shared<bool>(true);  // the timer may have fired when this returns; its handler still runs
    limit.async_wait([&socket, looking = std::weak_ptr<bool>{looking}](error_code failed) {
      if (!failed && !looking.expired()) socket.cancel(failed);
    });
    std::array<unsigned char, kMaxClientHelloBytes> bytes;
    std::size_t seen = 0;
    while (true) {
      // A peek leaves the bytes where they are, so the socket stays readable: after a look that needs more, only new bytes are worth waking
      // for.
      const int low_water = static_cast<int>(seen + 1);
      ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof(low_water));
      co_await socket.async_wait(tcp::socket::wait_read, into(error));
      if (error) co_return Opening::kUnknown;
      const ssize_t got = ::recv(socket.native_handle(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
      if (got <= 0 && !(got < 0 && errno == EAGAIN)) co_return Opening::kUnknown;
      const std::size_t now = got < 0 ? 0 : static_cast<std::size_t>(got);
      const Opening opening = classify({bytes.data(), now});
      if (opening != Opening::kNeedMore || now == bytes.size() || (now == seen && now > 0)) {
        const int one = 1;
        ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
        co_return opening == Opening::kNeedMore ? Opening::kUnknown : opening;
      }
      seen = now;
    }
  }

  asio::awaitable<void> pass_to_grpc(tcp::socket client) {
    using namespace asio::experimental::awaitable_operators;
    error_code error;
    local::socket server{io_};
    server.assign(local{}, ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error);
    const std::string name = error ? std::string{} : bind_unique_name(server.native_handle(), counter_);
    if (name.empty()) co_return;
    const auto remote = client.remote_endpoint(error);
    if (error) co_return;
    callers_.add(name, cat(remote.address().to_string(), ":", remote.port()));
    co_await server.async_connect(local::endpoint{options_.grpc_socket}, into(error));
    if (!error) {
      server.non_blocking(true, error);
      co_await (relay(client, server) && relay(server, client));
    }
    callers_.remove(name);
  }

  /// One direction until its end; a half-close is passed on, an error ends both.
  template <class From, class To>
  asio::awaitable<void> relay(From& from, To& to) {
    error_code error;
    while (true) {
      co_await from.async_wait(asio::socket_base::wait_read, into(error));
      if (error) break;
      const ssize_t got = ::recv(from.native_handle(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) {
        if (got < 0) break;
        to.shutdown(asio::socket_base::shutdown_send, error);
        co_return;
      }
      const ssize_t sent = ::send(to.native_handle(), buffer_.data(), static_cast<std::size_t>(got), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) break;
      const std::size_t taken = sent < 0 ? 0 : static_cast<std::size_t>(sent);
      if (taken == static_cast<std::size_t>(got)) continue;
      const std::string rest{buffer_.data() + taken, static_cast<std::size_t>(got) - taken};
      co_await asio::async_write(to, asio::buffer(rest), into(error));
      if (error) break;
    }
    from.close(error);
    to.close(error);
  }

  FrontOptions options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  std::vector<Listener> extra_;
  std::shared_ptr<asio::ssl::context> tls_;
  Callers callers_;
  std::array<char, kRelayBytes> buffer_{};
  std::uint64_t counter_ = 0;
  std::size_t opening_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Front>> Front::bind(FrontOptions options) {
  auto front = std::make_unique<AsioFront>(std::move(options));
  if (auto status = front->listen(); !status.ok()) return status;
  return front;
}

}  // namespace openshell::api
