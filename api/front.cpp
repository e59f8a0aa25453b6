#include "api/front.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "api/client_hello.hpp"
#include "api/http_session.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 1024;

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

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
        if (tls_) pass_to_grpc(std::move(socket));
        co_return;
      case Opening::kHttp2:
        if (!tls_) pass_to_grpc(std::move(socket));
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

  void pass_to_grpc(tcp::socket socket) {
    error_code error;
    const int fd = socket.release(error);
    if (!error) options_.grpc(fd);
  }

  FrontOptions options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  std::vector<Listener> extra_;
  std::shared_ptr<asio::ssl::context> tls_;
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
