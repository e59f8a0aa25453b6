#include "api/operator/operator_server.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include "api/operator/actors_json.hpp"
#include "api/operator/operator_routes.hpp"
#include "observability/log.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using local = asio::local::stream_protocol;

constexpr int kBacklog = 64;
constexpr std::chrono::milliseconds kStreamPace{1'000};
constexpr std::chrono::seconds kComment{15};
constexpr const char* kContentPolicy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

std::string new_epoch() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

/// A listener's sockets are closed when it is; the count is of its connections.
template <class Protocol>
struct Listener {
  explicit Listener(asio::io_context& io) : acceptor{io}, room{io, asio::steady_timer::time_point::max()} {}
  typename Protocol::acceptor acceptor;
  asio::steady_timer room;  // cancelled when a connection ends
  std::size_t connections = 0;
  Entrance entrance = Entrance::socket;
  std::string origin;
};

class AsioServer final : public OperatorServer {
 public:
  explicit AsioServer(OperatorOptions options) : options_{std::move(options)} {}
  ~AsioServer() override { close(); }

  absl::Status listen() {
    if (!options_.socket.empty()) {
      if (auto status = listen_on_socket(); !status.ok()) return status;
    }
    if (options_.browser) {
      if (auto status = listen_on_port("operator port", *options_.browser, browser_, Entrance::browser); !status.ok()) return status;
    }
    if (options_.metrics) {
      if (auto status = listen_on_port("metrics port", *options_.metrics, metrics_, Entrance::metrics); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  void open(std::shared_ptr<ActorSource> actors) override {
    watch_ = std::make_shared<ActorWatch>(io_.get_executor(), std::move(actors), options_.gateway_id, ActorWatch::Times{});
    routes_ = std::make_unique<OperatorRoutes>(watch_, new_epoch(), browser_.origin, options_.metrics_text);
    if (socket_.acceptor.is_open()) asio::co_spawn(io_, accept(socket_), asio::detached);
    if (browser_.acceptor.is_open()) asio::co_spawn(io_, accept(browser_), asio::detached);
    if (metrics_.acceptor.is_open()) asio::co_spawn(io_, accept(metrics_), asio::detached);
    thread_ = std::thread{[this] { io_.run(); }};
  }

  void close() override {
    if (std::exchange(closed_, true)) return;
    asio::post(io_, [this] {
      if (watch_) watch_->stop();
      io_.stop();
    });
    if (thread_.joinable()) thread_.join();
    routes_.reset();
    watch_.reset();  // and with it what it knows of the actors, whose system may end now
    if (owns_socket_) ::unlink(options_.socket.c_str());
  }

  std::uint16_t browser_port() const override {
    error_code error;
    return browser_.acceptor.is_open() ? browser_.acceptor.local_endpoint(error).port() : 0;
  }

 private:
  // ---- listening

  /// A socket that nobody answers on is left over from a gateway that was killed.
  absl::Status listen_on_socket() {
    const auto& path = options_.socket;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
      return absl::InvalidArgumentError("operator_socket must be an absolute path of at most 107 bytes");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const auto failed = [&](int code) {
      return absl::UnavailableError(cat("failed to bind operator socket ", path, ": ", std::strerror(code)));
    };
    if (auto status = check_directory(path); !status.ok()) return status;
    struct stat found {};
    if (::lstat(path.c_str(), &found) == 0) {
      if (!S_ISSOCK(found.st_mode)) return failed(EEXIST);
      const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      const bool answers =
          probe >= 0 && (::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN);
      if (probe >= 0) ::close(probe);
      if (answers) return absl::FailedPreconditionError(cat("operator socket ", path, " is in use by another process"));
      ::unlink(path.c_str());
    }
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return failed(errno);
    // The mode of a new socket's file comes from that of the socket, so that it is never open to others, not even for a moment.
    ::fchmod(fd, 0600);
    error_code error;
    socket_.acceptor.assign(local{}, fd, error);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return failed(errno);
    owns_socket_ = true;
    if (::chmod(path.c_str(), 0600) != 0) return failed(errno);
    if (::listen(fd, kBacklog) != 0) return failed(errno);
    return absl::OkStatus();
  }

  /// Nobody else may be able to put another socket in its place.
  static absl::Status check_directory(const std::string& path) {
    const auto directory = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
    const auto bad = [&](std::string_view why) {
      return absl::FailedPreconditionError(cat("failed to bind operator socket ", path, ": ", directory, " ", why));
    };
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return bad(std::strerror(errno));
    struct stat found {};
    if (::lstat(directory.c_str(), &found) != 0) return bad(std::strerror(errno));
    if (!S_ISDIR(found.st_mode)) return bad("is no directory, or a symbolic link");
    if (found.st_uid != ::geteuid() && found.st_uid != 0) return bad("belongs to another user");
    if ((found.st_mode & 022) != 0) return bad("can be written to by others");
    return absl::OkStatus();
  }

  absl::Status listen_on_port(const char* what, const OperatorAddress& at, Listener<tcp>& listener, Entrance entrance) {
    error_code error;
    const tcp::endpoint endpoint{asio::ip::make_address(at.ip, error), at.port};
    if (!error)
      listener.acceptor.assign(endpoint.protocol(), ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                               error);
    if (!error) listener.acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) listener.acceptor.bind(endpoint, error);
    if (!error) listener.acceptor.listen(kBacklog, error);
    if (error) return absl::UnavailableError(cat("failed to bind ", what, " ", at.ip, ":", at.port, ": ", error.message()));
    listener.entrance = entrance;
    const auto bound = listener.acceptor.local_endpoint(error);
    const auto ip = bound.address().is_v6() ? cat("[", bound.address().to_string(), "]") : bound.address().to_string();
    listener.origin = cat(ip, ":", bound.port());
    return absl::OkStatus();
  }

  template <class Protocol>
  asio::awaitable<void> accept(Listener<Protocol>& listener) {
    error_code error;
    while (listener.acceptor.is_open()) {
      if (listener.connections >= kOperatorConnections) {
        co_await listener.room.async_wait(into(error));
        continue;
      }
      co_await listener.acceptor.async_wait(Protocol::acceptor::wait_read, into(error));
      if (error == asio::error::operation_aborted) co_return;
      const int fd = ::accept4(listener.acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
        asio::steady_timer pause{io_, std::chrono::milliseconds{50}};
        co_await pause.async_wait(into(error));
        continue;
      }
      if (listener.entrance == Entrance::socket && !may_enter(fd)) {
        ::close(fd);
        continue;
      }
      typename Protocol::socket socket{io_};
      socket.assign(listener.acceptor.local_endpoint(error).protocol(), fd, error);
      if (error) {
        ::close(fd);  // nobody took it
        continue;
      }
      ++listener.connections;
      asio::co_spawn(io_, serve<Protocol>(std::move(socket), listener), [&listener](const std::exception_ptr&) {
        --listener.connections;
        listener.room.cancel();
      });
    }
  }

  /// The gateway's own user and root.
  static bool may_enter(int fd) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == ::geteuid());
  }

  // ---- serving

  template <class Protocol>
  asio::awaitable<void> serve(typename Protocol::socket socket, Listener<Protocol>& listener) {
    beast::basic_stream<Protocol> stream{std::move(socket)};
    beast::flat_buffer buffer{kOperatorHead + kOperatorBody};
    error_code error;
    for (bool first = true;; first = false) {
      http::request_parser<http::string_body> parser;
      parser.header_limit(kOperatorHead);
      parser.body_limit(kOperatorBody);
      stream.expires_after(std::chrono::seconds{first ? kOperatorHeadSeconds : kOperatorIdleSeconds});
      co_await http::async_read(stream, buffer, parser, into(error));
      if (error) co_return;
      const auto& message = parser.get();
      OperatorRequest request;
      request.entrance = listener.entrance;
      request.method = std::string{message.method_string()};
      request.target = std::string{message.target()};
      request.host = std::string{message[http::field::host]};
      request.cookie = std::string{message[http::field::cookie]};
      request.fetch_site = std::string{message["Sec-Fetch-Site"]};
      auto answer = co_await ask(request);
      if (answer.stream && message.method() == http::verb::get) {
        if (streams_ < kOperatorStreams) {
          co_await stream_changes(stream, message.version());
          co_return;
        }
        answer = {};
        answer.status = 503;
        answer.body = "too many streams\n";
      }
      const bool keep = message.keep_alive();
      co_await send(stream, answer, message.version(), message.method() == http::verb::head, keep, error);
      if (error || !keep) co_return;
    }
  }

  /// The answer, here. Whoever answers may do it on another thread.
  asio::awaitable<OperatorAnswer> ask(const OperatorRequest& request) {
    struct Waiting {
      explicit Waiting(asio::io_context& io) : timer{io, asio::steady_timer::time_point::max()} {}
      asio::steady_timer timer;
      std::optional<OperatorAnswer> answer;
    };
    auto waiting = std::make_shared<Waiting>(io_);
    routes_->answer(request, [&io = io_, waiting](OperatorAnswer answer) {
      auto held = std::make_shared<OperatorAnswer>(std::move(answer));
      asio::post(io, [waiting, held] {
        waiting->answer = std::move(*held);
        waiting->timer.cancel();
      });
    });
    error_code error;
    while (!waiting->answer) co_await waiting->timer.async_wait(into(error));
    co_return std::move(*waiting->answer);
  }

  template <class Body>
  static void set_headers(http::response<Body>& response) {
    response.set(http::field::cache_control, "no-store");
    response.set("Referrer-Policy", "no-referrer");
    response.set("X-Content-Type-Options", "nosniff");
    response.set("X-Frame-Options", "DENY");
    response.set("Content-Security-Policy", kContentPolicy);
  }

  template <class Stream>
  asio::awaitable<void> send(Stream& stream, OperatorAnswer& answer, unsigned version, bool head, bool keep, error_code& error) {
    http::response<http::string_body> response{static_cast<http::status>(answer.status), version};
    set_headers(response);
    if (!answer.set_cookie.empty()) response.set(http::field::set_cookie, answer.set_cookie);
    if (!answer.location.empty()) response.set(http::field::location, answer.location);
    if (!answer.body.empty()) response.set(http::field::content_type, answer.content_type);
    response.keep_alive(keep);
    if (head) {
      response.content_length(answer.body.size());
    } else {
      response.body() = std::move(answer.body);
      response.prepare_payload();
    }
    http::response_serializer<http::string_body> serializer{response};
    stream.expires_after(std::chrono::seconds{kOperatorWriteSeconds});
    if (head) {
      co_await http::async_write_header(stream, serializer, into(error));
    } else {
      co_await http::async_write(stream, serializer, into(error));
    }
  }

  /// Bytes for a reader that may be slow: what it takes gives it time for the rest.
  template <class Stream>
  asio::awaitable<bool> send_bytes(Stream& stream, const std::string& bytes) {
    error_code error;
    for (std::size_t at = 0; at < bytes.size();) {
      stream.expires_after(std::chrono::seconds{kOperatorWriteSeconds});
      const std::size_t put = co_await stream.async_write_some(asio::buffer(bytes.data() + at, bytes.size() - at), into(error));
      at += put;
      if (error) co_return false;
    }
    stream.expires_never();
    co_return true;
  }

  /// Notices that the reader left, which sends nothing any more.
  template <class Socket>
  static asio::awaitable<void> notice_end(Socket& socket, std::shared_ptr<asio::steady_timer> timer, std::shared_ptr<bool> gone) {
    error_code error;
    char byte = 0;
    co_await socket.async_read_some(asio::buffer(&byte, 1), into(error));
    if (error == asio::error::operation_aborted) co_return;
    *gone = true;
    timer->cancel();
  }

  template <class Stream>
  asio::awaitable<void> stream_changes(Stream& stream, unsigned version) {
    ++streams_;
    const auto ticket = watch_->watch();
    co_await stream_until_gone(stream, version);
    --streams_;
  }

  template <class Stream>
  asio::awaitable<void> stream_until_gone(Stream& stream, unsigned version) {
    http::response<http::empty_body> response{http::status::ok, version};
    set_headers(response);
    response.set(http::field::content_type, "text/event-stream");
    response.keep_alive(false);
    http::response_serializer<http::empty_body> serializer{response};
    error_code error;
    co_await http::async_write_header(stream, serializer, into(error));
    if (error) co_return;
    auto timer = std::make_shared<asio::steady_timer>(io_);
    auto gone = std::make_shared<bool>(false);
    asio::co_spawn(io_, notice_end(stream.socket(), timer, gone), asio::detached);
    watch_->refresh_own([timer] { timer->cancel(); });  // the first events shall hold the gateway's own actors
    timer->expires_after(kStreamPace);
    co_await timer->async_wait(into(error));
    std::uint64_t sent = 0;
    bool any = false;
    auto last = std::chrono::steady_clock::now();
    while (!*gone) {
      const auto now = std::chrono::steady_clock::now();
      const auto& map = watch_->map();
      std::string text;
      if (!any || map.seq() != sent) {
        auto change = any ? changes_json(map, routes_->epoch(), sent, now) : std::string{};
        const char* event = change.empty() ? "snapshot" : "change";
        if (change.empty()) change = actors_json(map, routes_->epoch(), now);
        sent = map.seq();
        any = true;
        text = cat("event: ", event, "\nid: ", routes_->epoch(), "-", sent, "\ndata: ", change, "\n\n");
      } else if (now - last >= kComment) {
        text = ": here\n\n";
      }
      if (!text.empty()) {
        last = now;
        if (!co_await send_bytes(stream, text)) break;
      }
      timer->expires_after(kStreamPace);
      if (!*gone) co_await timer->async_wait(into(error));
    }
    error_code ignored;
    stream.socket().close(ignored);  // ends notice_end too
  }

  OperatorOptions options_;
  asio::io_context io_{1};
  std::shared_ptr<ActorWatch> watch_;
  std::unique_ptr<OperatorRoutes> routes_;
  Listener<local> socket_{io_};
  Listener<tcp> browser_{io_}, metrics_{io_};
  std::size_t streams_ = 0;
  bool owns_socket_ = false;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OperatorServer>> OperatorServer::bind(OperatorOptions options) {
  auto server = std::make_unique<AsioServer>(std::move(options));
  if (auto status = server->listen(); !status.ok()) return status;
  return server;
}

}  // namespace openshell::api
