#include "egress/io/dialer.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace openshell::egress {
namespace {

using Tcp = asio::ip::tcp;

constexpr int kKeepIdleSeconds = 30;
constexpr int kKeepIntervalSeconds = 10;
constexpr int kKeepProbes = 3;

Tcp::endpoint endpoint_of(const IpAddress& address, Port port) {
  if (address.is_v4()) return {asio::ip::address_v4{address.v4_value()}, port.value};
  return {asio::ip::address_v6{address.bytes()}, port.value};
}

void tune(int fd) {
  const auto set = [fd](int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
}

/// This process or the host is out of something that comes back by itself: descriptors, buffers, local ports.
bool exhausted(const boost::system::error_code& error) {
  switch (error.value()) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EADDRNOTAVAIL:
      return error.category() == boost::system::system_category();
    default:
      return false;
  }
}

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{500};

Task<void> pause_for(asio::io_context& io, std::chrono::milliseconds time) {
  asio::steady_timer timer{io, time};
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

struct DialHandle::Attempt {
  explicit Attempt(asio::io_context& io) : socket{io}, timer{io} {}
  Tcp::socket socket;
  asio::steady_timer timer;
};

void DialHandle::cancel() {
  cancelled_ = true;
  if (const auto attempt = attempt_.lock()) {
    boost::system::error_code ignored;
    attempt->socket.close(ignored);
  }
}

Task<absl::StatusOr<Dialed>> dial(std::shared_ptr<asio::io_context> io, std::vector<IpAddress> addresses, Port port,
                                  std::chrono::milliseconds timeout, std::shared_ptr<DialHandle> handle) {
  std::string last = "no address";
  const auto give_up = std::chrono::steady_clock::now() + timeout;
  auto pause = kFirstPause;
  for (std::size_t at = 0; at < addresses.size();) {
    const auto& address = addresses[at];
    if (handle->cancelled_) co_return absl::AbortedError("dial was cancelled");
    const auto attempt = std::make_shared<DialHandle::Attempt>(*io);
    handle->attempt_ = attempt;
    attempt->timer.expires_after(timeout);
    attempt->timer.async_wait([watched = std::weak_ptr{attempt}](const boost::system::error_code& error) {
      const auto still = watched.lock();
      boost::system::error_code ignored;
      if (!error && still) still->socket.close(ignored);
    });
    boost::system::error_code error;
    co_await attempt->socket.async_connect(endpoint_of(address, port), asio::redirect_error(asio::use_awaitable, error));
    attempt->timer.cancel();
    if (!error && attempt->socket.is_open() && !handle->cancelled_) {
      tune(attempt->socket.native_handle());
      co_return Dialed{make_socket_stream(io, attempt->socket.release()), address};
    }
    last = error ? error.message() : "timed out";
    if (exhausted(error) && std::chrono::steady_clock::now() + pause < give_up) {
      co_await pause_for(*io, pause);
      pause = std::min(pause * 2, kLongestPause);
      continue;
    }
    ++at;
  }
  co_return absl::UnavailableError("no address answered: " + last);
}

}  // namespace openshell::egress
