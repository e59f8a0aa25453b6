#include "actors/sandbox/relay_stream.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "isolation/socket_address.hpp"

namespace openshell::sandbox {

namespace asio = boost::asio;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;

namespace {
constexpr std::chrono::seconds kLoopbackConnectDeadline{10};
}

/// One socket and one call. All on the executor.
class SocketRelay : public std::enable_shared_from_this<SocketRelay> {
 public:
  SocketRelay(Protocol::socket socket, std::shared_ptr<Call> call) : socket_{std::move(socket)}, call_{std::move(call)} {}

  void begin(std::string first) {
    if (first.empty()) {
      call_->read();
    } else {
      from_call(std::move(first));
    }
    read_socket();
  }

  void from_call(std::string bytes) {
    if (call_ended_) return;
    auto held = std::make_shared<std::string>(std::move(bytes));
    asio::async_write(socket_, asio::buffer(*held), [self = shared_from_this(), held](const error_code& error, std::size_t) {
      if (error) {
        self->fail("relay socket: write failed");
      } else {
        self->call_->read();
      }
    });
  }

  void from_call_end() {
    if (call_ended_) return;
    call_ended_ = true;
    error_code ignored;
    socket_.shutdown(Protocol::socket::shutdown_send, ignored);
    finish_if_both();
  }

  void written() {
    if (socket_ended_) {
      finish_if_both();
    } else {
      read_socket();
    }
  }

  /// The call is over. What did not end in order is reset, so that the workload sees a broken connection and not an end.
  void over() {
    if (!(call_ended_ && socket_ended_)) reset();
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void read_socket() {
    socket_.async_read_some(asio::buffer(buffer_), [self = shared_from_this()](const error_code& error, std::size_t n) {
      if (error == asio::error::eof) {
        self->socket_ended_ = true;
        if (self->call_ended_) {
          self->finish_if_both();
        } else {
          self->call_->write({});
        }
      } else if (error) {
        self->fail("relay socket: read failed");
      } else {
        self->call_->write(std::string(self->buffer_.data(), n));
      }
    });
  }

  void finish_if_both() {
    if (call_ended_ && socket_ended_) call_->finish(CallEnd::done);
  }

  void fail(const std::string& why) {
    reset();
    call_->finish(CallEnd::broken, why);
  }

  void reset() {
    const linger now{1, 0};
    if (socket_.is_open()) ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

  Protocol::socket socket_;
  std::shared_ptr<Call> call_;
  std::array<char, boundary::kMaxChunkBytes> buffer_;
  bool call_ended_ = false, socket_ended_ = false;
};

// ---- accept_network
// ---------------------------------------------------------------------------------------------------------------------------------

OpenStream::OpenStream(asio::io_context& io, std::shared_ptr<SocketHandover> handover, Decide decide)
    : io_{io}, handover_{std::move(handover)}, decide_{std::move(decide)} {}
OpenStream::~OpenStream() = default;

void OpenStream::decided(boundary::OpenDecision decision) {
  decided_ = true;
  if (auto decide = std::exchange(decide_, nullptr)) decide(decision);
}

void OpenStream::start(std::shared_ptr<Call> call) {
  asio::post(io_, [self = shared_from_this(), call = std::move(call)] {
    self->call_ = call;
    if (self->over_) {
      call->finish(CallEnd::broken, "open is over");
    } else {
      call->read();
    }
  });
}

void OpenStream::received(std::string bytes) {
  asio::post(io_, [self = shared_from_this(), bytes = std::move(bytes)]() mutable { self->take(std::move(bytes)); });
}

void OpenStream::take(std::string bytes) {
  if (relay_) {
    relay_->from_call(std::move(bytes));
    return;
  }
  if (decided_ || over_) {
    rest_ += bytes;  // bounded: no read is asked for until the relay stands
    return;
  }
  const bool good = decoder_.append(bytes).ok();
  auto frame = good ? decoder_.next() : std::nullopt;
  if (good && !frame && !decoder_.dead()) {
    call_->read();
    return;
  }
  const auto decision = frame && frame->channel == boundary::Channel::tcp_decision
                            ? boundary::decode_open_decision(frame->payload)
                            : absl::StatusOr<boundary::OpenDecision>{absl::InvalidArgumentError("no decision")};
  if (!decision.ok()) {
    decided(boundary::OpenDecision::mediation_unavailable);
    call_->finish(CallEnd::refused, "a TCP decision was expected");
    return;
  }
  rest_ = decoder_.take_rest();
  hand_over_ = *decision == boundary::OpenDecision::relay_handover;
  decided(*decision);
  if (*decision != boundary::OpenDecision::relay_ready && !hand_over_) call_->finish(CallEnd::done);
}

void OpenStream::hand_over(const isolation::FileDescriptor& socket) {
  const auto passed = handover_ ? handover_->pass(call_->request()->envelope.request_id, socket.get())
                                : absl::UnavailableError("sockets are not handed over here");
  if (passed.ok()) return call_->finish(CallEnd::done);
  const linger now{1, 0};  // the workload sees a broken connection and not an end
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  call_->finish(CallEnd::broken, std::string{passed.message()});
}

void OpenStream::received_end() {
  asio::post(io_, [self = shared_from_this()] {
    if (self->relay_) {
      self->relay_->from_call_end();
    } else if (!self->decided_ && self->call_) {
      self->decided(boundary::OpenDecision::mediation_unavailable);
      self->call_->finish(CallEnd::broken, "stream ended before the decision");
    }
  });
}

void OpenStream::written() {
  asio::post(io_, [self = shared_from_this()] {
    if (self->relay_) self->relay_->written();
  });
}

void OpenStream::ended() {
  asio::post(io_, [self = shared_from_this()] {
    self->over_ = true;
    if (!self->decided_) self->decided(boundary::OpenDecision::mediation_unavailable);
    if (self->relay_) self->relay_->over();
    self->relay_.reset();
    self->call_.reset();
  });
}

void OpenStream::established(isolation::FileDescriptor socket) {
  asio::post(io_, [self = shared_from_this(), fd = std::make_shared<isolation::FileDescriptor>(std::move(socket))] {
    if (!self->call_ || self->over_) return;  // the descriptor closes
    if (!fd->valid()) {
      self->call_->finish(CallEnd::broken, "open is over");
      return;
    }
    if (self->hand_over_) return self->hand_over(*fd);
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    ::getsockname(fd->get(), reinterpret_cast<sockaddr*>(&name), &length);
    Protocol::socket relay{self->io_, Protocol{name.ss_family, IPPROTO_TCP}, fd->release()};
    error_code ignored;
    relay.non_blocking(true, ignored);
    self->relay_ = std::make_shared<SocketRelay>(std::move(relay), self->call_);
    self->relay_->begin(std::exchange(self->rest_, {}));
  });
}

void OpenStream::drop(const std::string& why) {
  asio::post(io_, [self = shared_from_this(), why] {
    self->decided_ = true;
    self->decide_ = nullptr;
    self->over_ = true;
    if (self->call_) self->call_->finish(CallEnd::broken, why);
  });
}

// ---- loopback_connect
// -------------------------------------------------------------------------------------------------------------------------------

namespace {

class LoopbackStream final : public CallStream, public std::enable_shared_from_this<LoopbackStream> {
 public:
  LoopbackStream(asio::io_context& io, Protocol::socket socket) : io_{io}, socket_{std::move(socket)} {}
  void start(std::shared_ptr<Call> call) override {
    asio::post(io_, [self = shared_from_this(), call = std::move(call)] {
      self->relay_ = std::make_shared<SocketRelay>(std::move(self->socket_), call);
      self->relay_->begin({});
    });
  }
  void received(std::string bytes) override {
    asio::post(io_, [self = shared_from_this(), bytes = std::move(bytes)]() mutable {
      if (self->relay_) self->relay_->from_call(std::move(bytes));
    });
  }
  void received_end() override {
    asio::post(io_, [self = shared_from_this()] {
      if (self->relay_) self->relay_->from_call_end();
    });
  }
  void written() override {
    asio::post(io_, [self = shared_from_this()] {
      if (self->relay_) self->relay_->written();
    });
  }
  void ended() override {
    asio::post(io_, [self = shared_from_this()] {
      if (auto relay = std::exchange(self->relay_, nullptr)) relay->over();
    });
  }

 private:
  asio::io_context& io_;
  Protocol::socket socket_;
  std::shared_ptr<SocketRelay> relay_;
};

struct Connecting {
  Protocol::socket socket;
  asio::steady_timer deadline;
  bool answered = false;
};

}  // namespace

void serve_loopback_connect(asio::io_context& io, std::shared_ptr<Call> call) {
  const auto& request = std::get<boundary::LoopbackConnect>(call->request()->envelope.request);
  const auto address = isolation::SocketAddress::parse(request.host, request.port);
  if (!address.ok() || !(address->is_loopback() || address->is_unspecified())) {
    call->respond(boundary::Error{boundary::ErrorKind::invalid, "loopback_connect.host is not a loopback address"});
    return;
  }
  asio::post(io, [&io, call = std::move(call), address = *address] {
    sockaddr_storage storage{};
    const socklen_t length = address.to_sockaddr(storage);
    auto connecting = std::make_shared<Connecting>(Connecting{Protocol::socket{io}, asio::steady_timer{io, kLoopbackConnectDeadline}});
    error_code error;
    connecting->socket.open(Protocol{storage.ss_family, IPPROTO_TCP}, error);
    if (error) {
      call->respond(boundary::Error{boundary::ErrorKind::unavailable, "no socket for loopback_connect"});
      return;
    }
    connecting->deadline.async_wait([connecting](const error_code& cancelled) {
      error_code ignored;
      if (!cancelled && !connecting->answered) connecting->socket.close(ignored);
    });
    connecting->socket.async_connect(Protocol::endpoint{&storage, length}, [&io, call, connecting](const error_code& failed) {
      connecting->answered = true;
      connecting->deadline.cancel();
      if (failed) {
        call->respond(boundary::Error{boundary::ErrorKind::unavailable, "loopback_connect: " + failed.message()});
      } else {
        call->respond(boundary::PortConnected{}, std::make_shared<LoopbackStream>(io, std::move(connecting->socket)));
      }
    });
  });
}

}  // namespace openshell::sandbox
