#include "egress/io/streams.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
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
    if (!tcp_) return;
    const int now = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
    // Until it ends in order its end is a reset, whatever ends this process: a cut must never look like a whole answer.
    socket_.set_option(asio::socket_base::linger{true, 0}, ignored);
  }

  ~SocketStream() override { drop(!ended_); }

  // The wait needs a buffer. A small one serves a request or the head of a response; what is behind it is taken with a second call, so that
  // an idle connection holds no more than this. The kernel is asked for bytes once, not first whether there are any.
  void read(ReadDone done) override {
    socket_.async_read_some(asio::buffer(first_), [self = shared_from_this(), done = std::move(done)](
                                                      const boost::system::error_code& error, std::size_t count) mutable {
      self->arrived(error, count, std::move(done));
    });
  }

  std::optional<absl::Status> try_write(std::string& bytes) override {
    boost::system::error_code error;
    const auto taken = socket_.write_some(asio::buffer(bytes), error);
    if (!error && taken == bytes.size()) return absl::OkStatus();
    if (error && error != asio::error::would_block) return broken(error);
    if (taken > 0) bytes.erase(0, taken);
    return std::nullopt;
  }

  void write(std::string bytes, WriteDone done) override {
    auto rest = std::make_shared<std::string>(std::move(bytes));
    asio::async_write(
        socket_, asio::buffer(*rest),
        [self = shared_from_this(), rest, done = std::move(done)](const boost::system::error_code& failed, std::size_t) mutable {
          done(failed ? broken(failed) : absl::OkStatus());
        });
  }

  void shutdown_write() override {
    ended_ = true;
    boost::system::error_code ignored;
    if (tcp_) socket_.set_option(asio::socket_base::linger{false, 0}, ignored);
    socket_.shutdown(Socket::shutdown_send, ignored);
  }

  [[nodiscard]] int native_socket() const override { return const_cast<Socket&>(socket_).native_handle(); }

  void reset() override {
    asio::post(*io_, [self = shared_from_this()] { self->drop(true); });
  }

 private:
  using Socket = asio::generic::stream_protocol::socket;
  static constexpr std::size_t kFirstBytes = 2048;

  void arrived(const boost::system::error_code& error, std::size_t count, ReadDone done) {
    if (error == asio::error::eof) return done(std::string{});
    if (error) return done(broken(error));
    std::string bytes{first_.data(), count};
    if (count == first_.size()) take_more(bytes);
    done(std::move(bytes));
  }

  /// What else waits, up to kMaxChunk in all. A break shows at the next read.
  void take_more(std::string& bytes) {
    int waiting = 0;
    ioctl(socket_.native_handle(), FIONREAD, &waiting);
    if (waiting <= 0) return;
    const auto before = bytes.size();
    bytes.resize(std::min<std::size_t>(before + static_cast<std::size_t>(waiting), kMaxChunk));
    const auto count = ::recv(socket_.native_handle(), bytes.data() + before, bytes.size() - before, MSG_DONTWAIT);
    bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }

  void drop(bool hard) {
    if (!socket_.is_open()) return;
    boost::system::error_code ignored;
    if (hard && tcp_) socket_.set_option(asio::socket_base::linger{true, 0}, ignored);
    socket_.close(ignored);
  }

  std::shared_ptr<asio::io_context> io_;
  Socket socket_;
  std::array<char, kFirstBytes> first_;
  bool tcp_ = false;
  bool ended_ = false;
};

/// Carries the calls of other threads to the one that alone may touch the socket.
class PostedStream final : public ByteStream {
 public:
  PostedStream(std::shared_ptr<asio::io_context> io, int fd) : io_{std::move(io)}, stream_{make_socket_stream(io_, fd)} {}
  ~PostedStream() override {
    asio::post(*io_, [stream = std::move(stream_)] {});
  }
  void read(ReadDone done) override {
    asio::post(*io_, [stream = stream_, done = std::move(done)]() mutable { stream->read(std::move(done)); });
  }
  void write(std::string bytes, WriteDone done) override {
    asio::post(*io_, [stream = stream_, bytes = std::move(bytes), done = std::move(done)]() mutable {
      stream->write(std::move(bytes), std::move(done));
    });
  }
  void shutdown_write() override {
    asio::post(*io_, [stream = stream_] { stream->shutdown_write(); });
  }
  void reset() override { stream_->reset(); }

 private:
  const std::shared_ptr<asio::io_context> io_;
  std::shared_ptr<ByteStream> stream_;
};

/// Where a completion goes on: at once where it comes on the I/O thread by itself, later where it comes from inside the call that asked.
class Resumption {
 public:
  explicit Resumption(std::shared_ptr<asio::io_context> io) : io_{std::move(io)} {}
  void asked() const { *asking_ = false; }
  template <class Work>
  void run(Work work) const {
    if (*asking_) {
      asio::post(*io_, std::move(work));
    } else {
      asio::dispatch(*io_, std::move(work));
    }
  }

 private:
  std::shared_ptr<asio::io_context> io_;
  std::shared_ptr<std::atomic<bool>> asking_ = std::make_shared<std::atomic<bool>>(true);
};

// The two initiations are plain functions: a lambda with captures inside a co_await expression is destroyed twice by GCC 12.
Task<absl::StatusOr<std::string>> start_read(std::shared_ptr<asio::io_context> io, ByteStream& carrier) {
  return asio::async_initiate<const asio::use_awaitable_t<>, void(absl::StatusOr<std::string>)>(
      [](auto handler, std::shared_ptr<asio::io_context> context, ByteStream* stream) {
        const Resumption resumption{std::move(context)};
        stream->read([resumption, handler = std::move(handler)](absl::StatusOr<std::string> result) mutable {
          resumption.run([handler = std::move(handler), result = std::move(result)]() mutable { std::move(handler)(std::move(result)); });
        });
        resumption.asked();
      },
      asio::use_awaitable, std::move(io), &carrier);
}

Task<absl::Status> start_write(std::shared_ptr<asio::io_context> io, ByteStream& carrier, std::string bytes) {
  return asio::async_initiate<const asio::use_awaitable_t<>, void(absl::Status)>(
      [](auto handler, std::shared_ptr<asio::io_context> context, ByteStream* stream, std::string data) {
        const Resumption resumption{std::move(context)};
        stream->write(std::move(data), [resumption, handler = std::move(handler)](absl::Status result) mutable {
          resumption.run([handler = std::move(handler), result = std::move(result)]() mutable { std::move(handler)(std::move(result)); });
        });
        resumption.asked();
      },
      asio::use_awaitable, std::move(io), &carrier, std::move(bytes));
}

}  // namespace

Task<absl::StatusOr<std::string>> CarrierStream::read() { return start_read(io_, *carrier_); }

Task<absl::Status> CarrierStream::write(std::string bytes) {
  // Small writes go out at once; only what the socket does not take waits for it.
  if (auto done = carrier_->try_write(bytes)) co_return *std::move(done);
  co_return co_await start_write(io_, *carrier_, std::move(bytes));
}

Task<void> CarrierStream::shutdown_write() {
  carrier_->shutdown_write();
  co_return;
}

std::shared_ptr<ByteStream> make_socket_stream(const std::shared_ptr<asio::io_context>& io, int fd) {
  return std::make_shared<SocketStream>(io, fd);
}

std::shared_ptr<ByteStream> make_posted_socket_stream(const std::shared_ptr<asio::io_context>& io, int fd) {
  return std::make_shared<PostedStream>(io, fd);
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

void Reader::put_back(std::string bytes) {
  bytes += buffered();
  buffer_ = std::move(bytes);
  at_ = 0;
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

void Gate::open() {
  open_ = true;
  auto waiting = std::exchange(waiting_, {});
  for (auto& one : waiting) asio::post(io_, std::move(one));
}

Task<void> Gate::pass() {
  return asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [](auto handler, Gate* gate) { gate->waiting_.emplace_back([handler = std::move(handler)]() mutable { std::move(handler)(); }); },
      asio::use_awaitable, this);
}

Task<void> Gate::wait() {
  if (!open_) co_await pass();
}

}  // namespace openshell::egress
