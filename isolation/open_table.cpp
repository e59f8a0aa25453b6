#include "isolation/open_table.hpp"

#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "isolation/task_memory.hpp"

namespace openshell::isolation {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kSignalTick{10};
constexpr int kSignalLooks = 2;  ///< a pending signal counts when it was seen this often: the kernel may be about to take it itself
constexpr std::chrono::seconds kDetachedMemory{30};
constexpr std::size_t kMaxDetachedMemory = 256;

bool is_connected(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

bool is_connecting(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state != TCP_CLOSE;
}

int connect_again(int socket, const SocketAddress& destination) {
  sockaddr_storage storage;
  const socklen_t size = destination.to_sockaddr(storage);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&storage), size) == 0 ? 0 : errno;
}

int errno_of(OpenEnd why) { return why == OpenEnd::TimedOut ? ETIMEDOUT : ECANCELED; }

}  // namespace

OpenTable::OpenTable(Limits limits, const NotifyChannel& channel, Bridge& bridge, OpenDecider& decider)
    : limits_{limits}, channel_{channel}, bridge_{bridge}, decider_{&decider} {}

OpenTable::OpenPtr OpenTable::find(OpenId id) const {
  const std::lock_guard lock{mutex_};
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

std::size_t OpenTable::size() const {
  const std::lock_guard lock{mutex_};
  return by_id_.size();
}

std::optional<OpenId> OpenTable::begin(ConnectCall call) {
  for (;;) {
    OpenPtr existing;
    {
      const std::lock_guard lock{mutex_};
      const auto it = by_cookie_.find(call.cookie);
      if (frozen_ || it == by_cookie_.end()) return begin_new(std::move(call));
      existing = it->second;
    }
    {
      const std::lock_guard lock{existing->mutex};
      if (existing->state == State::Done) continue;  // it ended between the two locks, and is forgotten by now
      if (existing->state != State::Held || is_connecting(existing->socket.get())) {
        join(*existing, std::move(call));
        return std::nullopt;
      }
      // Disconnected by its owner while it was held: the decision under way was about that connection, this is another.
      finish(*existing, ECANCELED, OpenEnd::TaskGone);
    }
    announce(*existing);
  }
}

/// Under the table's lock.
std::optional<OpenId> OpenTable::begin_new(ConnectCall call) {
  const auto answer = [&](int error) {
    channel_.answer(call.notification, error);
    return std::nullopt;
  };
  if (frozen_) return answer(ECANCELED);
  // The restart of an interrupted connect that went through meanwhile.
  if (connected_detached_.erase(call.cookie) > 0) return answer(0);
  // The kernel says 0 once after an EINPROGRESS, then EISCONN.
  if (is_connected(call.socket.get())) return answer(call.nonblocking ? connect_again(call.socket.get(), call.destination) : EISCONN);
  if (by_id_.size() >= limits_.pending) {
    refused_capacity_.fetch_add(1);
    return answer(EAGAIN);
  }
  auto open = std::make_shared<Open>();
  open->id = next_id_++;
  open->cookie = call.cookie;
  open->destination = call.destination;
  open->nonblocking = call.nonblocking;
  open->socket = std::move(call.socket);
  open->notification = call.notification;
  open->tid = call.tid;
  open->received = call.received;
  open->deadline = call.received + limits_.timeout;
  open->next_signal_look = call.received + kSignalTick;
  by_id_.emplace(open->id, open);
  by_cookie_.emplace(open->cookie, open);
  opens_.fetch_add(1);
  return open->id;
}

/// A second connect on a socket whose first one is undecided.
void OpenTable::join(Open& open, ConnectCall call) {
  const auto answer = [&](int error) { channel_.answer(call.notification, error); };
  // LegacyReadOnly: a signal ended the first notification, and the call is back before the watchdog looked.
  if (open.state == State::Waiting && !channel_.valid(open.notification)) open.state = State::Detached;
  switch (open.state) {
    case State::Detached:
      if (call.destination != open.destination) return answer(EALREADY);
      open.state = State::Waiting;
      open.notification = call.notification;
      open.tid = call.tid;
      open.nonblocking = call.nonblocking;
      open.received = call.received;  // five more milliseconds, but the 30 s go on
      open.signal_looks = 0;
      return;
    case State::Held:
      if (call.destination != open.destination) return answer(EALREADY);
      // What the kernel itself says of a socket in SYN_SENT.
      if (call.nonblocking) return answer(connect_again(call.socket.get(), call.destination));
      if (open.notification != 0) return answer(EALREADY);
      open.notification = call.notification;  // made blocking meanwhile: it waits for the same decision
      open.tid = call.tid;
      return;
    case State::Waiting:
    case State::Done:
      return answer(EALREADY);
  }
}

void OpenTable::ask(OpenId id, absl::StatusOr<BinaryIdentity> identity) {
  const OpenPtr open = find(id);
  if (!open) return;
  OpenRequest request;
  {
    const std::lock_guard lock{open->mutex};
    if (open->state == State::Done) return;
    // The identity was read while the task waited in this very call, or it counts for nothing.
    if (open->state == State::Waiting && identity.ok() && !channel_.valid(open->notification)) {
      finish(*open, ECANCELED, OpenEnd::TaskGone);  // not asked yet, so nobody is told
      return;
    }
    open->asked = true;
    request = {open->id,
               open->destination.normalized(),
               open->destination.is_v4_mapped(),
               std::move(identity),
               open->cookie,
               open->nonblocking,
               open->received,
               open->deadline};
  }
  decider_.load()->open(std::move(request));
}

void OpenTable::forget(const Open& open) {
  const std::lock_guard lock{mutex_};
  by_id_.erase(open.id);
  if (const auto it = by_cookie_.find(open.cookie); it != by_cookie_.end() && it->second->id == open.id) by_cookie_.erase(it);
}

/// Ends an open with an error. Caller holds open.mutex, and calls announce() once it let go of it.
void OpenTable::finish(Open& open, int error, std::optional<OpenEnd> why) {
  open.state = State::Done;
  if (open.notification != 0) channel_.answer(std::exchange(open.notification, 0), error);
  if (open.hold && why == OpenEnd::TimedOut)
    bridge_.expire(std::move(open.hold), std::move(open.socket));
  else if (open.hold)
    bridge_.refuse(std::move(open.hold), std::move(open.socket));
  open.socket.reset();
  forget(open);
  if (!why) return;
  (*why == OpenEnd::TimedOut ? timed_out_ : cancelled_).fetch_add(1);
  if (open.asked) open.unannounced = why;
}

/// Tells the decider, with no lock held.
void OpenTable::announce(Open& open) {
  std::optional<OpenEnd> why;
  {
    const std::lock_guard lock{open.mutex};
    why = std::exchange(open.unannounced, std::nullopt);
  }
  if (why) decider_.load()->ended(open.id, *why);
}

absl::StatusOr<FileDescriptor> OpenTable::allow(OpenId id) {
  const OpenPtr open = find(id);
  if (!open) return absl::NotFoundError(absl::StrCat("open ", id, " is over"));
  const std::lock_guard lock{open->mutex};
  if (open->state == State::Done) return absl::NotFoundError(absl::StrCat("open ", id, " is over"));
  if (open->state == State::Waiting && !channel_.valid(open->notification)) {
    finish(*open, ECANCELED, std::nullopt);
    cancelled_.fetch_add(1);
    return absl::NotFoundError(absl::StrCat("open ", id, ": its task is gone"));
  }
  const bool detached = open->state == State::Detached;
  auto relay = open->state == State::Held ? bridge_.complete(*open->hold, open->socket.get())
                                          : bridge_.connect_now(open->socket.get(), open->destination);
  open->hold.reset();
  if (!relay.ok()) {
    finish(*open, ECONNABORTED, std::nullopt);
    return relay;
  }
  open->state = State::Done;
  open->socket.reset();
  // A task that died here leaves a connection whose other end is closed: the relay sees its end at once.
  if (open->notification != 0) channel_.answer(std::exchange(open->notification, 0), 0);
  if (detached) {
    const std::lock_guard table{mutex_};
    if (connected_detached_.size() >= kMaxDetachedMemory) connected_detached_.clear();
    connected_detached_.emplace(open->cookie, Clock::now());
  }
  forget(*open);
  allowed_.fetch_add(1);
  return relay;
}

absl::Status OpenTable::deny(OpenId id, DenyReason reason) {
  const OpenPtr open = find(id);
  if (!open) return absl::NotFoundError(absl::StrCat("open ", id, " is over"));
  const std::lock_guard lock{open->mutex};
  if (open->state == State::Done) return absl::NotFoundError(absl::StrCat("open ", id, " is over"));
  denied_.fetch_add(1);
  finish(*open, isolation::errno_of(reason), std::nullopt);
  return absl::OkStatus();
}

void OpenTable::try_hold(Open& open) {
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(open.deadline - Clock::now());
  auto hold = bridge_.hold(open.socket.get(), open.destination, rest);
  if (!hold.ok()) {
    open.holdable = false;  // it goes on waiting in its call, as a blocking one does
    return;
  }
  open.hold = std::move(*hold);
  open.state = State::Held;
  held_.fetch_add(1);
  channel_.answer(std::exchange(open.notification, 0), EINPROGRESS);
}

/// With WAIT_KILLABLE_RECV a caught signal waits until the call is answered, so a pending one is answered here.
void OpenTable::look_for_signals(Open& open) {
  const PendingSignals pending = pending_signals(open.tid);
  if (!pending.any()) {
    open.signal_looks = 0;
    return;
  }
  if (++open.signal_looks < kSignalLooks) return;
  if (!channel_.answer(std::exchange(open.notification, 0), pending.certain() ? kErestartsys : EINTR)) return;
  if (open.state == State::Waiting) open.state = State::Detached;
}

/// False when the open ended.
bool OpenTable::tick_one(Open& open, Clock::time_point now, Clock::time_point& next) {
  if (open.state == State::Done) return false;
  if (now >= open.deadline) {
    finish(open, errno_of(OpenEnd::TimedOut), OpenEnd::TimedOut);
    return false;
  }
  next = std::min(next, open.deadline);
  if (open.state == State::Waiting && open.nonblocking && open.holdable) {
    const auto hold_at = open.received + limits_.fast_path;
    if (now >= hold_at)
      try_hold(open);
    else
      next = std::min(next, hold_at);
  }
  if (open.notification == 0) return true;
  if (now >= open.next_signal_look) {
    open.next_signal_look = now + kSignalTick;
    if (!channel_.valid(open.notification)) {
      // Below 5.19 a signal, SIGSTOP too, ends the call and it may come back: the decision goes on. A dead task leaves nothing to connect.
      open.notification = 0;
      if (open.state == State::Waiting) {
        if (::kill(open.tid, 0) != 0) {
          finish(open, ECANCELED, OpenEnd::TaskGone);
          return false;
        }
        open.state = State::Detached;
      }
      return true;
    }
    look_for_signals(open);
  }
  if (open.notification != 0) next = std::min(next, open.next_signal_look);
  return true;
}

Clock::time_point OpenTable::tick(Clock::time_point now) {
  std::vector<OpenPtr> opens;
  {
    const std::lock_guard lock{mutex_};
    opens.reserve(by_id_.size());
    for (const auto& [id, open] : by_id_) opens.push_back(open);
    std::erase_if(connected_detached_, [now](const auto& entry) { return now - entry.second > kDetachedMemory; });
  }
  auto next = Clock::time_point::max();
  for (const auto& open : opens) {
    {
      const std::unique_lock lock{open->mutex, std::try_to_lock};
      if (!lock) {
        next = std::min(next, now + kSignalTick);  // being decided right now
        continue;
      }
      if (tick_one(*open, now, next)) continue;
    }
    announce(*open);
  }
  return next;
}

void OpenTable::set_frozen(bool frozen) {
  const std::lock_guard lock{mutex_};
  frozen_ = frozen;
}

void OpenTable::end_all(OpenEnd why) {
  for (;;) {
    std::vector<OpenPtr> opens;
    {
      const std::lock_guard lock{mutex_};
      for (const auto& [id, open] : by_id_) opens.push_back(open);
    }
    if (opens.empty()) return;
    for (const auto& open : opens) {
      {
        const std::lock_guard lock{open->mutex};
        if (open->state != State::Done) finish(*open, errno_of(why), why);
      }
      announce(*open);
    }
  }
}

void OpenTable::add_to(BrokerStatistics& statistics) const {
  statistics.external_opens = opens_.load();
  statistics.allowed = allowed_.load();
  statistics.denied = denied_.load();
  statistics.timed_out = timed_out_.load();
  statistics.cancelled = cancelled_.load();
  statistics.held = held_.load();
  statistics.refused_capacity += refused_capacity_.load();
  statistics.pending = size();
}

}  // namespace openshell::isolation
