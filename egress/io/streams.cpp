#include "egress/io/streams.hpp"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

namespace openshell::egress {
namespace {

absl::Status broken(const boost::system::error_code& error) {
  return error == asio::error::operation_aborted ? absl::AbortedError("stream was reset") : absl::UnavailableError(error.message());
}

class SocketStream final : public ByteStream, public std::enable_shared_from_this<SocketStream> {
 public:
  SocketStream(std::shared_ptr<asio::io_context> io, int fd) : io_{std::move(io)}, socket_{*io_} {
    int domain = AF_UNIX;
    socklen_t size = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    tcp_ = domain == AF_INET || domain == AF_INET6;
    boost::system::error_code ignored;
    socket_.assign(asio::generic::stream_protocol{domain, 0}, fd, ignored);
    socket_.non_blocking(true, ignored);
  }

  ~SocketStream() override { drop(!ended_); }

  void read(ReadDone done) override {
    socket_.async_wait(Socket::wait_read, [self = shared_from_this(), done = std::move(done)](
                                              const boost::system::error_code& error) mutable { self->readable(error, std::move(done)); });
  }

  void write(std::string bytes, WriteDone done) override {
    // Small writes go out at once; only what the socket does not take waits for it.
    boost::system::error_code error;
    const auto taken = socket_.write_some(asio::buffer(bytes), error);
    if (!error && taken == bytes.size()) return done(absl::OkStatus());
    if (error && error != asio::error::would_block) return done(broken(error));
    auto rest = std::make_shared<std::string>(taken == 0 ? std::move(bytes) : bytes.substr(taken));
    asio::async_write(
        socket_, asio::buffer(*rest),
        [self = shared_from_this(), rest, done = std::move(done)](const boost::system::error_code& failed, std::size_t) mutable {
          done(failed ? broken(failed) : absl::OkStatus());
        });
  }

  void shutdown_write() override {
    ended_ = true;
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }

  void reset() override {
    asio::post(*io_, [self = shared_from_this()] { self->drop(true); });
  }

 private:
  using Socket = asio::generic::stream_protocol::socket;

  void readable(const boost::system::error_code& error, ReadDone done) {
    if (error) return done(broken(error));
    int waiting = 0;
    ioctl(socket_.native_handle(), FIONREAD, &waiting);
    std::string bytes;
    bytes.resize(std::clamp<std::size_t>(static_cast<std::size_t>(std::max(waiting, 1)), 1, kMaxChunk));
    boost::system::error_code failed;
    const auto count = socket_.read_some(asio::buffer(bytes), failed);
    if (failed == asio::error::would_block) return read(std::move(done));
    if (failed && failed != asio::error::eof) return done(broken(failed));
    bytes.resize(failed ? 0 : count);
    done(std::move(bytes));
  }

  void drop(bool hard) {
    if (!socket_.is_open()) return;
    boost::system::error_code ignored;
    if (hard && tcp_) socket_.set_option(asio::socket_base::linger{true, 0}, ignored);
    socket_.close(ignored);
  }

  std::shared_ptr<asio::io_context> io_;
  Socket socket_;
  bool tcp_ = false;
  bool ended_ = false;
};

// The two initiations are plain functions: a lambda with captures inside a co_await expression is destroyed twice by GCC 12.
Task<absl::StatusOr<std::string>> start_read(std::shared_ptr<asio::io_context> io, ByteStream& carrier) {
  return asio::async_initiate<const asio::use_awaitable_t<>, void(absl::StatusOr<std::string>)>(
      [](auto handler, std::shared_ptr<asio::io_context> context, ByteStream* stream) {
        stream->read([context, handler = std::move(handler)](absl::StatusOr<std::string> result) mutable {
          asio::post(*context,
                     [handler = std::move(handler), result = std::move(result)]() mutable { std::move(handler)(std::move(result)); });
        });
      },
      asio::use_awaitable, std::move(io), &carrier);
}

Task<absl::Status> start_write(std::shared_ptr<asio::io_context> io, ByteStream& carrier, std::string bytes) {
  return asio::async_initiate<const asio::use_awaitable_t<>, void(absl::Status)>(
      [](auto handler, std::shared_ptr<asio::io_context> context, ByteStream* stream, std::string data) {
        stream->write(std::move(data), [context, handler = std::move(handler)](absl::Status result) mutable {
          asio::post(*context,
                     [handler = std::move(handler), result = std::move(result)]() mutable { std::move(handler)(std::move(result)); });
        });
      },
      asio::use_awaitable, std::move(io), &carrier, std::move(bytes));
}

}  // namespace

Task<absl::StatusOr<std::string>> CarrierStream::read() { return start_read(io_, *carrier_); }
Task<absl::Status> CarrierStream::write(std::string bytes) { return start_write(io_, *carrier_, std::move(bytes)); }

Task<void> CarrierStream::shutdown_write() {
  carrier_->shutdown_write();
  co_return;
}

std::shared_ptr<ByteStream> make_socket_stream(const std::shared_ptr<asio::io_context>& io, int fd) {
  return std::make_shared<SocketStream>(io, fd);
}

void Reader::consume(std::size_t count) noexcept {
  at_ += count;
  if (at_ == buffer_.size()) {
    buffer_.clear();
    at_ = 0;
  }
}

std::string Reader::take() {
  std::string out = at_ == 0 ? std::move(buffer_) : buffer_.substr(at_);
  buffer_.clear();
  at_ = 0;
  return out;
}

struct Reader::Ahead {
  explicit Ahead(asio::io_context& io) : finished{io} {}
  Gate finished;
  bool done = false;
  absl::StatusOr<bool> result = false;
};

void Reader::read_ahead(asio::io_context& io, std::function<void(bool)> on_end) {
  if (ahead_) return;
  ahead_ = std::make_shared<Ahead>(io);
  asio::co_spawn(io, run_ahead(ahead_, std::move(on_end)), asio::detached);
}

Task<void> Reader::run_ahead(std::shared_ptr<Ahead> ahead, std::function<void(bool)> on_end) {
  ahead->result = co_await fill_now();
  ahead->done = true;
  if (!ahead->result.ok() || !*ahead->result) on_end(!ahead->result.ok());
  ahead->finished.open();
}

bool Reader::reading_ahead() const noexcept { return ahead_ && !ahead_->done; }

Task<void> Reader::settle() {
  const auto ahead = ahead_;
  if (ahead && !ahead->done) co_await ahead->finished.wait();
}

Task<absl::StatusOr<bool>> Reader::fill() {
  if (ahead_) {
    const auto ahead = std::exchange(ahead_, nullptr);
    if (!ahead->done) co_await ahead->finished.wait();
    co_return ahead->result;
  }
  co_return co_await fill_now();
}

Task<absl::StatusOr<bool>> Reader::fill_now() {
  auto more = co_await stream_->read();
  if (!more.ok()) co_return more.status();
  if (more->empty()) co_return false;
  if (buffer_.empty()) {
    buffer_ = std::move(*more);
  } else {
    if (at_ > 0) buffer_.erase(0, at_);
    buffer_.append(*more);
  }
  at_ = 0;
  co_return true;
}

void Watchdog::arm(std::chrono::milliseconds after) {
  disarm();
  alive_ = std::make_shared<bool>(true);
  timer_.expires_after(after);
  timer_.async_wait([this, alive = alive_, fired = fired_](const boost::system::error_code& error) {
    if (error || !*alive) return;  // `this` may be gone then
    *fired = true;
    on_time_up_();
  });
}

void Watchdog::disarm() noexcept {
  if (alive_) *alive_ = false;
  boost::system::error_code ignored;
  timer_.cancel(ignored);
}

Task<void> Gate::wait() {
  while (!open_) {
    timer_.expires_at(asio::steady_timer::time_point::max());
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

}  // namespace openshell::egress
