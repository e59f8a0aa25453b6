#include "isolation/broker.hpp"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "isolation/broker_impl.hpp"
#include "isolation/task_memory.hpp"

namespace openshell::isolation {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMaxSockaddr = sizeof(sockaddr_storage);  // 128, the kernel's own limit
constexpr unsigned kMaxReceivers = 4;
constexpr unsigned kIdentityThreads = 2;
constexpr std::chrono::milliseconds kWatchdogTick{10};
constexpr std::chrono::milliseconds kSettleTick{500};

template <class Value>
Value socket_option(int fd, int level, int name) {
  Value value{};
  socklen_t size = sizeof value;
  if (::getsockopt(fd, level, name, &value, &size) != 0) return Value{};
  return value;
}

/// Pins a new socket to lo; it survives dup, fork, exec and accept, and F3 keeps the workload from undoing it. Read back.
bool confine_to_loopback(int fd) {
  constexpr char kLoopback[] = "lo";
  if (::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, kLoopback, sizeof kLoopback) != 0) return false;
  std::array<char, 16> bound{};
  socklen_t size = bound.size();
  return ::getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, bound.data(), &size) == 0 && std::strcmp(bound.data(), kLoopback) == 0;
}

int connect_to(int fd, const SocketAddress& address) {
  sockaddr_storage storage;
  const socklen_t size = address.to_sockaddr(storage);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&storage), size) == 0 ? 0 : errno;
}

/// Whether routing itself refuses UDP to everywhere but loopback, as the rules of an AnyIP driver do. A device would get a datagram past
/// them: where one is given, the kernel takes a destination that has no route for a neighbour, and the sender learns of no error.
bool routing_refuses_datagrams() {
  for (const char* literal : {"203.0.113.9", "2001:db8:ffff::9"}) {
    const bool ipv6 = std::strchr(literal, ':') != nullptr;
    const FileDescriptor probe{::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (!probe && ipv6 && errno == EAFNOSUPPORT) continue;
    if (!probe || connect_to(probe.get(), *SocketAddress::parse(literal, 9)) != ENETUNREACH) return false;
  }
  return true;
}

void block_all_signals_but_interrupt() {
  sigset_t mask;
  ::sigfillset(&mask);
  ::sigdelset(&mask, kInterruptSignal);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

std::string_view to_string(DenyReason reason) {
  switch (reason) {
    case DenyReason::PolicyDenied:
      return "policy_denied";
    case DenyReason::IdentityUnavailable:
      return "identity_unavailable";
    case DenyReason::InvalidDestination:
      return "invalid_destination";
    case DenyReason::ResourceExhausted:
      return "resource_exhausted";
    case DenyReason::MediationUnavailable:
      return "mediation_unavailable";
  }
  return "?";
}

int errno_of(DenyReason reason) noexcept {
  switch (reason) {
    case DenyReason::PolicyDenied:
    case DenyReason::IdentityUnavailable:
    case DenyReason::InvalidDestination:
      return EACCES;
    case DenyReason::ResourceExhausted:
      return EAGAIN;
    case DenyReason::MediationUnavailable:
      return ECANCELED;
  }
  return EACCES;
}

Broker::Impl::Impl(Options given, FileDescriptor listener, OpenDecider& decider)
    : options{std::move(given)},
      channel{std::move(listener)},
      bridge{options.peer_names},
      opens{{kMaxPendingOpens, options.fast_path, options.open_timeout}, channel, bridge, decider},
      identities{::getpid()},
      pins_datagrams_{options.peer_names != PeerNames::AnyIp || !routing_refuses_datagrams()},
      workers_{channel},
      signals_{::getpid(), channel} {}

absl::Status Broker::Impl::start() {
  if (auto status = reserve_interrupt_signal(); !status.ok()) return status;
  stop_event_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!stop_event_) return absl::ResourceExhaustedError("broker: no descriptor is left");
  unsigned count = options.receivers;
  if (count == 0) count = std::thread::hardware_concurrency() / 2;
  count = std::clamp(count, 1U, kMaxReceivers);
  receivers_left_ = count;
  for (unsigned i = 0; i < count; ++i) receivers_.emplace_back([this] { receive_loop(); });
  for (unsigned i = 0; i < kIdentityThreads; ++i) identity_threads_.emplace_back([this] { identity_loop(); });
  watchdog_ = std::thread{[this] { watchdog_loop(); }};
  return absl::OkStatus();
}

Broker::Impl::~Impl() {
  stop_ = true;
  opens.set_frozen(true);
  const std::uint64_t one = 1;
  if (stop_event_ && ::write(stop_event_.get(), &one, sizeof one) < 0) {
    // The event is raised already.
  }
  // A receiver may sit in RECV, which knows no event: interrupt until all have left.
  while (receivers_left_.load() > 0) {
    for (auto& thread : receivers_) ::pthread_kill(thread.native_handle(), kInterruptSignal);
    ::poll(nullptr, 0, 1);
  }
  for (auto& thread : receivers_) thread.join();
  identity_wake_.notify_all();
  for (auto& thread : identity_threads_) thread.join();
  { const std::lock_guard lock{watchdog_mutex_}; }
  watchdog_wake_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
  opens.end_all(OpenEnd::Stopped);
  workers_.stop();
}

void Broker::Impl::receive_loop() {
  block_all_signals_but_interrupt();
  while (!stop_.load()) {
    std::array<pollfd, 2> entries{{{channel.fd(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}}};
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) break;
    if (stop_.load() || (entries[1].revents & POLLIN) != 0) break;
    if ((entries[0].revents & POLLIN) != 0) {
      seccomp_notif notification;
      const int error = channel.receive(notification);
      if (error == 0)
        handle(notification);
      else if (error != ENOENT && error != EINTR) {
        healthy = false;
        break;
      }
    } else if ((entries[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
      // Nobody is left who could notify: the launcher and all its children ended.
      healthy = (entries[0].revents & (POLLERR | POLLNVAL)) == 0 && healthy.load();
      break;
    }
  }
  receivers_left_.fetch_sub(1);
}

void Broker::Impl::handle(const seccomp_notif& notification) {
  notifications_.fetch_add(1, std::memory_order_relaxed);
  switch (notification.data.nr) {
    case SYS_socket:
      return on_socket(notification);
    case SYS_connect:
      return on_connect(notification);
    case SYS_getpeername:
      return on_getpeername(notification);
    default:
      if (SignalMediator::handles(notification.data.nr)) return signals_.handle(notification);
      channel.answer(notification.id, ENOSYS);
  }
}

void Broker::Impl::on_socket(const seccomp_notif& notification) {
  sockets_.fetch_add(1, std::memory_order_relaxed);
  const int family = static_cast<int>(notification.data.args[0]), flags = static_cast<int>(notification.data.args[1]),
            protocol = static_cast<int>(notification.data.args[2]);
  const int type = flags & 0xf, extra = flags & ~0xf;
  const auto refuse = [&](int error) { channel.answer(notification.id, error); };
  if ((extra & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return refuse(EINVAL);
  if (type == SOCK_RAW || type == SOCK_PACKET) return refuse(EPERM);
  const bool stream = type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
  const bool datagram = type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  if (!stream && !datagram) return refuse(EPROTONOSUPPORT);
  FileDescriptor socket{::socket(family, type | SOCK_CLOEXEC | (extra & SOCK_NONBLOCK), protocol)};
  if (!socket) return refuse(errno);
  if ((stream || pins_datagrams_) && !confine_to_loopback(socket.get())) return refuse(EPERM);
  // A full table leaves the notification open; any other failure means that the task is gone.
  if (const int error = channel.answer_with_descriptor(notification.id, socket.get(), (extra & SOCK_CLOEXEC) != 0); error != 0)
    refuse(error);
}

void Broker::Impl::on_connect(const seccomp_notif& notification) {
  connects_.fetch_add(1, std::memory_order_relaxed);
  const auto refuse = [&](int error) { channel.answer(notification.id, error); };
  ConnectCall call;
  call.received = Clock::now();
  call.notification = notification.id;
  call.tid = static_cast<pid_t>(notification.pid);
  const auto length = static_cast<std::int32_t>(notification.data.args[2]);

  TakenDescriptor taken = take_descriptor(call.tid, static_cast<int>(notification.data.args[0]));
  if (!taken.fd) return refuse(taken.error);
  if (!channel.valid(notification.id)) return;
  call.socket = std::move(taken.fd);
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(call.socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || (domain != AF_INET && domain != AF_INET6)) {
    // Unix and netlink sockets, and what is none: native. A number re-pointed meanwhile meets Landlock, which denies TCP, and lo, to which
    // every socket of ours is pinned.
    continued_.fetch_add(1, std::memory_order_relaxed);
    channel.let_through(notification.id);
    return;
  }
  if (length < static_cast<std::int32_t>(sizeof(sa_family_t)) || length > static_cast<std::int32_t>(kMaxSockaddr)) return refuse(EINVAL);
  std::array<std::byte, kMaxSockaddr> bytes{};
  const std::span copy{bytes.data(), static_cast<std::size_t>(length)};
  if (const int error = read_task_memory(call.tid, notification.data.args[1], copy); error != 0)
    return refuse(error == EFAULT ? EFAULT : EACCES);
  if (!channel.valid(notification.id)) return;

  sa_family_t family = AF_UNSPEC;
  std::memcpy(&family, bytes.data(), sizeof family);
  const int type = socket_option<int>(call.socket.get(), SOL_SOCKET, SO_TYPE);
  if (family == AF_UNSPEC) {
    sockaddr nowhere{};
    const int error = ::connect(call.socket.get(), &nowhere, sizeof nowhere) == 0 ? 0 : errno;
    if (type == SOCK_DGRAM && pins_datagrams_) confine_to_loopback(call.socket.get());  // a UDP disconnect drops the device
    return refuse(error);
  }
  if (family != domain) return refuse(EAFNOSUPPORT);
  auto destination = SocketAddress::from_sockaddr(copy);
  if (!destination.ok()) return refuse(EINVAL);
  call.destination = *destination;
  call.cookie = socket_option<std::uint64_t>(call.socket.get(), SOL_SOCKET, SO_COOKIE);
  call.nonblocking = (::fcntl(call.socket.get(), F_GETFL) & O_NONBLOCK) != 0;
  connect_inet(std::move(call), type);
}

bool Broker::Impl::is_external_loopback(const SocketAddress& destination) const {
  const auto& ports = options.external_loopback_ports;
  return destination.normalized().address_text() == "127.0.0.1" && std::find(ports.begin(), ports.end(), destination.port()) != ports.end();
}

/// Classifies and performs, or hands on, a connect of an INET socket.
void Broker::Impl::connect_inet(ConnectCall call, int type) {
  const SocketAddress& destination = call.destination;
  const auto answer = [&](int error) { channel.answer(call.notification, error); };
  const auto& reserved = options.reserved_ports;
  if (std::find(reserved.begin(), reserved.end(), destination.port()) != reserved.end()) return answer(EACCES);
  const bool local = destination.is_loopback() || destination.is_unspecified();
  if (local && bridge.is_bridge_port(destination.port())) return answer(ECONNREFUSED);
  const bool stream = type == SOCK_STREAM;
  if (local && is_external_loopback(destination)) return stream ? connect_external(std::move(call)) : answer(EACCES);
  if (!local) return stream ? connect_external(std::move(call)) : answer(ENETUNREACH);
  if (!stream || call.nonblocking) return answer(connect_to(call.socket.get(), destination));
  const std::uint64_t notification = call.notification;
  if (!workers_.submit(std::move(call))) {
    refused_capacity_.fetch_add(1);
    channel.answer(notification, EAGAIN);
    return;
  }
  wake_watchdog(Clock::now() + kWatchdogTick);
}

void Broker::Impl::connect_external(ConnectCall call) {
  const pid_t tid = call.tid;
  const auto received = call.received;
  const int fast_open = socket_option<int>(call.socket.get(), IPPROTO_TCP, TCP_FASTOPEN_CONNECT);
  if (fast_open != 0) {
    const int off = 0;  // it would make connect return before a SYN is sent
    ::setsockopt(call.socket.get(), IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &off, sizeof off);
  }
  if (options.peer_names == PeerNames::Notified) peer_names_.remember(call.cookie, call.destination);
  const auto id = opens.begin(std::move(call));
  if (!id) {
    wake_watchdog(received + kWatchdogTick);
    return;
  }
  wake_watchdog(received + options.fast_path);
  if (auto identity = identities.read_cached(tid)) {
    opens.ask(*id, std::move(*identity));
    return;
  }
  const std::lock_guard lock{identity_mutex_};
  identity_queue_.emplace_back(*id, tid);
  identity_wake_.notify_one();
}

void Broker::Impl::on_getpeername(const seccomp_notif& notification) {
  const auto refuse = [&](int error) { channel.answer(notification.id, error); };
  const auto tid = static_cast<pid_t>(notification.pid);
  const TakenDescriptor taken = take_descriptor(tid, static_cast<int>(notification.data.args[0]));
  if (!taken.fd) return refuse(taken.error);
  const int domain = socket_option<int>(taken.fd.get(), SOL_SOCKET, SO_DOMAIN);
  if (domain != AF_INET && domain != AF_INET6) {
    continued_.fetch_add(1, std::memory_order_relaxed);
    channel.let_through(notification.id);
    return;
  }
  if (options.cancellation == CancellationMode::LegacyReadOnly) return refuse(EOPNOTSUPP);
  sockaddr_storage name{};
  socklen_t name_size = sizeof name;
  if (::getpeername(taken.fd.get(), reinterpret_cast<sockaddr*>(&name), &name_size) != 0) return refuse(errno);
  if (const auto asked = peer_names_.find(socket_option<std::uint64_t>(taken.fd.get(), SOL_SOCKET, SO_COOKIE)))
    name_size = asked->to_sockaddr(name);

  socklen_t room = 0;
  if (read_task_memory(tid, notification.data.args[2], std::as_writable_bytes(std::span{&room, 1})) != 0) return refuse(EFAULT);
  if (static_cast<std::int32_t>(room) < 0) return refuse(EINVAL);
  const std::size_t copied = std::min<std::size_t>(room, name_size);
  if (!channel.valid(notification.id)) return;
  const auto bytes = std::as_bytes(std::span{&name, 1}).first(copied);
  if (write_task_memory(tid, notification.data.args[1], bytes) != 0 ||
      write_task_memory(tid, notification.data.args[2], std::as_bytes(std::span{&name_size, 1})) != 0)
    return refuse(EFAULT);
  refuse(0);
}

void Broker::Impl::identity_loop() {
  block_all_signals_but_interrupt();
  std::unique_lock lock{identity_mutex_};
  for (;;) {
    identity_wake_.wait_for(lock, std::chrono::seconds{1}, [this] { return stop_.load() || !identity_queue_.empty(); });
    if (stop_.load()) return;
    if (identity_queue_.empty()) continue;
    const auto [id, tid] = identity_queue_.front();
    identity_queue_.pop_front();
    lock.unlock();
    opens.ask(id, identities.read(tid));
    lock.lock();
  }
}

void Broker::Impl::wake_watchdog(Clock::time_point needed) {
  const std::lock_guard lock{watchdog_mutex_};
  if (needed >= watchdog_next_) return;
  watchdog_next_ = needed;
  watchdog_wake_.notify_one();
}

void Broker::Impl::watchdog_loop() {
  block_all_signals_but_interrupt();
  std::unique_lock lock{watchdog_mutex_};
  while (!stop_.load()) {
    const auto until = watchdog_next_;
    const auto woken = [this, until] { return stop_.load() || watchdog_next_ < until; };
    // Idle, it sleeps until somebody connects: no timer runs without a reason.
    if (until == Clock::time_point::max())
      watchdog_wake_.wait(lock, woken);
    else
      watchdog_wake_.wait_until(lock, until, woken);
    const auto now = Clock::now();
    if (now < watchdog_next_) continue;
    watchdog_next_ = Clock::time_point::max();
    lock.unlock();
    auto next = opens.tick(now);
    if (workers_.watch(frozen_.load())) next = std::min(next, now + kWatchdogTick);
    if (bridge.settle()) next = std::min(next, now + kSettleTick);
    lock.lock();
    watchdog_next_ = std::min(watchdog_next_, next);
  }
}

absl::Status Broker::Impl::deny(OpenId id, DenyReason reason) {
  const absl::Status status = opens.deny(id, reason);
  wake_watchdog(Clock::now() + kSettleTick);  // a refused socket that was held is let go of after its last SYN
  return status;
}

void Broker::Impl::freeze() {
  frozen_ = true;
  signals_.set_frozen(true);
  opens.set_frozen(true);
  opens.end_all(OpenEnd::Frozen);
  workers_.cancel_all();
  wake_watchdog(Clock::now() + kSettleTick);
}

void Broker::Impl::resume() {
  opens.set_frozen(false);
  signals_.set_frozen(false);
  frozen_ = false;
}

BrokerStatistics Broker::Impl::statistics() const {
  BrokerStatistics out;
  out.notifications = notifications_;
  out.sockets = sockets_;
  out.connects = connects_;
  out.continued = continued_ + signals_.continued();
  out.refused_capacity = refused_capacity_;
  out.peer_name_misses = bridge.peer_name_misses();
  opens.add_to(out);
  return out;
}

Broker::Broker(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Broker::~Broker() = default;

absl::StatusOr<std::unique_ptr<Broker>> Broker::start(Options options, FileDescriptor listener, OpenDecider& decider) {
  if (!listener) return absl::InvalidArgumentError("the broker needs the launcher's notification listener");
  auto impl = std::make_unique<Impl>(std::move(options), std::move(listener), decider);
  if (auto status = impl->start(); !status.ok()) return status;
  return std::unique_ptr<Broker>{new Broker{std::move(impl)}};
}

absl::StatusOr<FileDescriptor> Broker::allow(OpenId id) { return impl_->opens.allow(id); }
absl::Status Broker::deny(OpenId id, DenyReason reason) { return impl_->deny(id, reason); }
void Broker::freeze() { impl_->freeze(); }
void Broker::resume() { impl_->resume(); }
OpenDecider& Broker::exchange_decider(OpenDecider& decider) { return impl_->opens.exchange_decider(decider); }
bool Broker::healthy() const noexcept { return impl_->healthy; }
bool Broker::rejects_unknown_notification() const noexcept { return !impl_->channel.valid(~0ULL); }
BrokerStatistics Broker::statistics() const { return impl_->statistics(); }
IdentityReader& Broker::identities() noexcept { return impl_->identities; }

}  // namespace openshell::isolation
