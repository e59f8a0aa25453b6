#include "isolation/bridge.hpp"

#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "isolation/kernel_abi.hpp"

namespace openshell::isolation {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kHandshakeMs = 500;  ///< everything is on loopback and takes microseconds; this bounds what a workload can do to it
constexpr int kListenQueue = 16;
constexpr int kSinkAttempts = 4;
constexpr int kMaxSynRetries = 60;                          ///< TCP_SYNCNT while held: one a second
constexpr int kSynIntervalMs = 1000;                        ///< TCP_RTO_MAX_MS while held
constexpr std::chrono::milliseconds kRefusalLingers{1500};  ///< until the last SYN of a refused socket was answered
constexpr std::size_t kMaxLingering = 64;
#ifndef IPV6_FREEBIND
constexpr int IPV6_FREEBIND = 78;
#endif

absl::Status failure(const char* what) { return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno))); }

template <class Value>
bool set_option(int fd, int level, int name, Value value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}
template <class Value>
Value get_option(int fd, int level, int name) {
  Value value{};
  socklen_t size = sizeof value;
  ::getsockopt(fd, level, name, &value, &size);
  return value;
}

SocketAddress local_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  auto address = SocketAddress::from_sockaddr(std::as_bytes(std::span{&storage, 1}).first(size));
  return address.ok() ? address->normalized() : SocketAddress{};
}
SocketAddress peer_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  auto address = SocketAddress::from_sockaddr(std::as_bytes(std::span{&storage, 1}).first(size));
  return address.ok() ? address->normalized() : SocketAddress{};
}

int connect_to(int fd, const SocketAddress& address) {
  sockaddr_storage storage;
  const socklen_t size = address.to_sockaddr(storage);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&storage), size) == 0 ? 0 : errno;
}
void disconnect(int fd) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  ::connect(fd, &nowhere, sizeof nowhere);
}

int tcp_state(int fd) { return get_option<tcp_info>(fd, IPPROTO_TCP, TCP_INFO).tcpi_state; }

/// A broker socket for one family: non-blocking, close-on-exec, confined to lo like the workload's.
FileDescriptor make_socket(bool ipv6) {
  FileDescriptor fd{::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP)};
  if (!fd) return fd;
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (ipv6) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_option(fd.get(), IPPROTO_IPV6, IPV6_FREEBIND, 1);
  } else {
    set_option(fd.get(), IPPROTO_IP, IP_FREEBIND, 1);
  }
  return fd;
}

/// `shared`: SO_REUSEPORT, for the sockets of held destinations, which several holds use at once. Ports go by uid there, so the workload
/// could join; what it reaches is itself.
FileDescriptor make_bound(const SocketAddress& address, bool shared) {
  FileDescriptor fd = make_socket(address.is_ipv6());
  if (!fd) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (shared) set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
  sockaddr_storage storage;
  const socklen_t size = address.to_sockaddr(storage);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

bool wait_for(int fd, short events, int timeout_ms) {
  pollfd entry{fd, events, 0};
  return ::poll(&entry, 1, timeout_ms) == 1 && (entry.revents & events) != 0;
}

SocketAddress loopback_of(const SocketAddress& like) { return *SocketAddress::parse(like.normalized().is_ipv6() ? "::1" : "127.0.0.1", 0); }

/// `address` in the form in which `destination` was written: a v4-mapped caller has an INET6 socket, which wants a mapped address.
SocketAddress in_form_of(const SocketAddress& destination, const SocketAddress& address) {
  if (!destination.is_v4_mapped()) return address;
  return *SocketAddress::parse(absl::StrCat("::ffff:", address.address_text()), address.port());
}

}  // namespace

/// A listener that swallows SYNs, and the connection that fills its queue.
struct Bridge::Sink {
  FileDescriptor listener, filler;
  SocketAddress address;

  static absl::StatusOr<std::unique_ptr<Sink>> make(FileDescriptor bound) {
    auto sink = std::make_unique<Sink>();
    sink->listener = std::move(bound);
    sink->address = local_of(sink->listener.get());
    if (::listen(sink->listener.get(), 0) != 0) return failure("SYN-hold: listen");
    for (int attempt = 0; attempt < kSinkAttempts; ++attempt) {
      sink->filler = make_socket(sink->address.is_ipv6());
      if (!sink->filler) return failure("SYN-hold: socket");
      const int error = connect_to(sink->filler.get(), sink->address);
      if ((error == 0 || error == EINPROGRESS) && wait_for(sink->listener.get(), POLLIN, 20)) return sink;
    }
    return absl::UnavailableError("SYN-hold: the queue can not be filled");
  }
};

/// One address and port of the real world that bridges stand on (AnyIP).
struct Bridge::Place {
  std::mutex mutex;
  std::unique_ptr<Sink> sink;
  std::size_t holds = 0;
  struct Refused {
    FileDescriptor socket;
    Clock::time_point until;
  };
  std::vector<Refused> refused;  ///< their next SYN must meet a closed port, or nothing at all

  /// Before anything listens here again.
  void disconnect_refused() {
    for (const auto& entry : refused)
      if (tcp_state(entry.socket.get()) == TCP_SYN_SENT) disconnect(entry.socket.get());
    refused.clear();
  }
};

Bridge::Hold::Hold() = default;
Bridge::Hold::~Hold() { leave(); }

void Bridge::Hold::leave() {
  if (place) {
    const std::lock_guard lock{place->mutex};
    if (--place->holds == 0) place->sink.reset();
  }
  place.reset();
  if (own_sink) {
    const std::lock_guard lock{bridge->mutex_};
    if (auto it = bridge->ports_.find(own_sink->address.port()); it != bridge->ports_.end()) bridge->ports_.erase(it);
  }
  own_sink.reset();
}

void Bridge::Hold::slow_down(int socket, std::chrono::milliseconds limit) {
  saved_user_timeout = get_option<unsigned>(socket, IPPROTO_TCP, TCP_USER_TIMEOUT);
  saved_syn_retries = get_option<int>(socket, IPPROTO_TCP, TCP_SYNCNT);
  saved_rto_max = get_option<int>(socket, IPPROTO_TCP, kernel::kTcpRtoMaxMs);
  has_rto_max = set_option(socket, IPPROTO_TCP, kernel::kTcpRtoMaxMs, kSynIntervalMs);
  set_option(socket, IPPROTO_TCP, TCP_SYNCNT, kMaxSynRetries);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<unsigned>(std::max<std::int64_t>(limit.count(), 1)));
}

void Bridge::Hold::restore(int socket) const {
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, saved_user_timeout);
  set_option(socket, IPPROTO_TCP, TCP_SYNCNT, saved_syn_retries);
  if (has_rto_max && saved_rto_max > 0) set_option(socket, IPPROTO_TCP, kernel::kTcpRtoMaxMs, saved_rto_max);
}

Bridge::Bridge(PeerNames mode) : mode_{mode} {}
Bridge::~Bridge() { expired_.clear(); }

std::shared_ptr<Bridge::Place> Bridge::place_of(const SocketAddress& destination) {
  const std::lock_guard lock{mutex_};
  auto& slot = places_[destination.normalized()];
  auto place = slot.lock();
  if (!place) slot = place = std::make_shared<Place>();
  return place;
}

absl::StatusOr<FileDescriptor> Bridge::connect_by_listener(int socket, const SocketAddress& destination, FileDescriptor listener) {
  if (::listen(listener.get(), kListenQueue) != 0) return failure("bridge: listen");
  const SocketAddress target = in_form_of(destination, local_of(listener.get()));
  const int error = connect_to(socket, target);
  if (error != 0 && error != EINPROGRESS) {
    errno = error;
    return failure("bridge: connect");
  }
  const auto until = Clock::now() + std::chrono::milliseconds{kHandshakeMs};
  while (Clock::now() < until) {
    if (!wait_for(listener.get(), POLLIN, kHandshakeMs)) break;
    FileDescriptor accepted{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!accepted) continue;
    // Somebody else's connection is dropped: the relay belongs to this socket alone.
    if (peer_of(accepted.get()) != local_of(socket)) continue;
    set_option(accepted.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    if (error == EINPROGRESS) (void)connect_to(socket, target);  // as a native connect that succeeded at once: the next one is EISCONN
    return accepted;
  }
  disconnect(socket);
  return absl::UnavailableError("bridge: the connection did not arrive");
}

absl::StatusOr<FileDescriptor> Bridge::connect_on_loopback(int socket, const SocketAddress& destination) {
  FileDescriptor listener = make_bound(loopback_of(destination), false);
  if (!listener) return failure("bridge: bind");
  const std::uint16_t port = local_of(listener.get()).port();
  {
    const std::lock_guard lock{mutex_};
    ports_.insert(port);
  }
  auto relay = connect_by_listener(socket, destination, std::move(listener));
  const std::lock_guard lock{mutex_};
  if (auto it = ports_.find(port); it != ports_.end()) ports_.erase(it);
  return relay;
}

namespace {
/// B connects to the held socket A; both must then be each other's peer.
absl::StatusOr<FileDescriptor> open_simultaneously(FileDescriptor partner, int socket) {
  const SocketAddress target = local_of(socket);
  const int error = connect_to(partner.get(), target);
  if (error != 0 && error != EINPROGRESS) {
    errno = error;
    return failure("SYN-hold: connect");
  }
  if (!wait_for(partner.get(), POLLOUT, kHandshakeMs) || get_option<int>(partner.get(), SOL_SOCKET, SO_ERROR) != 0 ||
      tcp_state(partner.get()) != TCP_ESTABLISHED)
    return absl::UnavailableError("SYN-hold: the handshake did not come about");
  // A is established by the segment that follows B's; on loopback it has been, and a short wait costs nothing.
  wait_for(socket, POLLOUT, kHandshakeMs);
  if (tcp_state(socket) != TCP_ESTABLISHED || peer_of(socket) != local_of(partner.get()) || peer_of(partner.get()) != local_of(socket))
    return absl::UnavailableError("SYN-hold: another peer answered");
  return partner;
}
}  // namespace

absl::StatusOr<FileDescriptor> Bridge::connect_through_sink(Place& place, int socket, const SocketAddress& destination) {
  FileDescriptor partner = make_bound(place.sink->address, true);
  if (!partner) return failure("bridge: bind beside a hold");
  // Starts the handshake without waiting for it, whatever the description's O_NONBLOCK says; no byte is sent.
  sockaddr_storage storage;
  const socklen_t size = destination.to_sockaddr(storage);
  if (::sendto(socket, "", 0, MSG_FASTOPEN | MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&storage), size) < 0 && errno != EINPROGRESS)
    return failure("bridge: start beside a hold");
  auto relay = open_simultaneously(std::move(partner), socket);
  if (!relay.ok())
    disconnect(socket);
  else
    (void)connect_to(socket, destination);
  return relay;
}

absl::StatusOr<FileDescriptor> Bridge::connect_now(int socket, const SocketAddress& destination) {
  if (mode_ == PeerNames::AnyIp) {
    auto place = place_of(destination);
    const std::lock_guard lock{place->mutex};
    place->disconnect_refused();
    if (place->sink) {
      if (auto relay = connect_through_sink(*place, socket, destination); relay.ok()) return relay;
    } else if (FileDescriptor listener = make_bound(destination.normalized(), false)) {
      return connect_by_listener(socket, destination, std::move(listener));
    }
    misses_.fetch_add(1);  // a listener of the workload has the port: the connect works, its peer name is the bridge's
  }
  return connect_on_loopback(socket, destination);
}

absl::StatusOr<std::unique_ptr<Bridge::Hold>> Bridge::hold_at_destination(int socket, const SocketAddress& destination) {
  auto hold = std::make_unique<Hold>();
  auto place = place_of(destination);
  const std::lock_guard lock{place->mutex};
  place->disconnect_refused();
  if (!place->sink) {
    FileDescriptor bound = make_bound(destination.normalized(), true);
    if (!bound) return failure("SYN-hold: bind");
    auto sink = Sink::make(std::move(bound));
    if (!sink.ok()) return sink.status();
    place->sink = std::move(*sink);
  }
  hold->partner = make_bound(destination.normalized(), true);
  const int error = hold->partner ? connect_to(socket, destination) : errno;
  if (error != EINPROGRESS || tcp_state(socket) != TCP_SYN_SENT) {
    if (place->holds == 0) place->sink.reset();
    if (error == 0 || error == EINPROGRESS) disconnect(socket);
    errno = error;
    return failure("SYN-hold: connect");
  }
  ++place->holds;
  hold->place = place;
  return hold;
}

absl::StatusOr<std::unique_ptr<Bridge::Hold>> Bridge::hold_on_loopback(int socket, const SocketAddress& destination) {
  auto hold = std::make_unique<Hold>();
  hold->bridge = this;
  hold->partner = make_bound(loopback_of(destination), false);
  if (!hold->partner) return failure("SYN-hold: bind");
  FileDescriptor bound = make_bound(local_of(hold->partner.get()), false);
  if (!bound) return failure("SYN-hold: bind");
  auto sink = Sink::make(std::move(bound));
  if (!sink.ok()) return sink.status();
  const SocketAddress target = (*sink)->address;
  {
    const std::lock_guard lock{mutex_};
    ports_.insert(target.port());
  }
  hold->own_sink = std::move(*sink);
  const int error = connect_to(socket, in_form_of(destination, target));
  if (error == EINPROGRESS && tcp_state(socket) == TCP_SYN_SENT) return hold;
  if (error == 0 || error == EINPROGRESS) disconnect(socket);
  errno = error;
  return failure("SYN-hold: connect");
}

absl::StatusOr<std::unique_ptr<Bridge::Hold>> Bridge::hold(int socket, const SocketAddress& destination, std::chrono::milliseconds limit) {
  // Timers of a handshake are taken when it starts, so they are set first and undone where nothing is held.
  Hold timers;
  timers.slow_down(socket, limit);
  absl::StatusOr<std::unique_ptr<Hold>> held = absl::UnavailableError("");
  if (mode_ == PeerNames::AnyIp) held = hold_at_destination(socket, destination);
  if (!held.ok()) {
    if (mode_ == PeerNames::AnyIp) misses_.fetch_add(1);
    held = hold_on_loopback(socket, destination);
  }
  if (!held.ok()) {
    timers.restore(socket);
    return held;
  }
  (*held)->bridge = this;
  (*held)->saved_user_timeout = timers.saved_user_timeout;
  (*held)->saved_syn_retries = timers.saved_syn_retries;
  (*held)->saved_rto_max = timers.saved_rto_max;
  (*held)->has_rto_max = timers.has_rto_max;
  return held;
}

absl::StatusOr<FileDescriptor> Bridge::complete(Hold& hold, int socket) {
  auto relay = open_simultaneously(std::move(hold.partner), socket);
  hold.restore(socket);
  if (!relay.ok() && tcp_state(socket) == TCP_SYN_SENT) disconnect(socket);
  hold.leave();
  return relay;
}

void Bridge::refuse(std::unique_ptr<Hold> hold, FileDescriptor socket) {
  hold->restore(socket.get());
  hold->partner.reset();
  if (!hold->place) return;  // the sink goes with the hold: the next SYN meets a closed port
  const auto place = hold->place;
  {
    const std::lock_guard lock{place->mutex};
    if (tcp_state(socket.get()) != TCP_SYN_SENT)
      socket.reset();  // over already: its owner disconnected it
    else if (place->holds > 1 || place->refused.size() >= kMaxLingering)
      disconnect(socket.get());
    else
      place->refused.push_back({std::move(socket), Clock::now() + kRefusalLingers});
  }
  hold->leave();
  const std::lock_guard lock{mutex_};
  lingering_.push_back({place, Clock::now() + kRefusalLingers});
}

void Bridge::expire(std::unique_ptr<Hold> hold, FileDescriptor socket) {
  hold->partner.reset();
  const std::lock_guard lock{mutex_};
  if (expired_.size() < kMaxExpired) expired_.push_back({std::move(hold), std::move(socket), Clock::now() + kRefusalLingers});
}

bool Bridge::settle() {
  const auto now = Clock::now();
  std::vector<std::shared_ptr<Place>> due;
  std::vector<Expired> over;
  bool more = false;
  {
    const std::lock_guard lock{mutex_};
    std::erase_if(lingering_, [&](auto& entry) {
      if (entry.second > now) return false;
      due.push_back(std::move(entry.first));
      return true;
    });
    std::erase_if(expired_, [&](Expired& entry) {
      if (entry.until > now && tcp_state(entry.socket.get()) == TCP_SYN_SENT) return false;
      over.push_back(std::move(entry));
      return true;
    });
    more = !lingering_.empty() || !expired_.empty();
  }
  for (const auto& entry : over) {
    entry.hold->restore(entry.socket.get());
    if (tcp_state(entry.socket.get()) == TCP_SYN_SENT) disconnect(entry.socket.get());
  }
  over.clear();
  for (const auto& place : due) {
    const std::lock_guard lock{place->mutex};
    std::erase_if(place->refused, [now](const Place::Refused& entry) { return entry.until <= now; });
  }
  due.clear();
  const std::lock_guard lock{mutex_};
  std::erase_if(places_, [](const auto& entry) { return entry.second.expired(); });
  return more;
}

bool Bridge::is_bridge_port(std::uint16_t port) const {
  const std::lock_guard lock{mutex_};
  return ports_.contains(port);
}

}  // namespace openshell::isolation
