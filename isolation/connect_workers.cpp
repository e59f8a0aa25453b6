#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "isolation/broker_impl.hpp"
#include "isolation/task_memory.hpp"

namespace openshell::isolation {

namespace {
void do_nothing(int) {}

}  // namespace

absl::Status reserve_interrupt_signal() {
  struct sigaction current {};
  if (::sigaction(kInterruptSignal, nullptr, &current) != 0) return absl::InternalError("SIGUSR2 can not be examined");
  if (current.sa_handler == do_nothing) return absl::OkStatus();
  if (current.sa_handler != SIG_DFL) return absl::FailedPreconditionError("SIGUSR2 is reserved for the broker, and has another handler");
  struct sigaction action {};
  action.sa_handler = do_nothing;
  if (::sigaction(kInterruptSignal, &action, nullptr) != 0) return absl::InternalError("SIGUSR2 can not be reserved");
  return absl::OkStatus();
}

bool ConnectWorkers::submit(ConnectCall call) {
  const std::lock_guard lock{mutex_};
  if (stop_ || running_ + queue_.size() >= Broker::kMaxBlockingConnects) return false;
  queue_.push_back(std::move(call));
  if (waiting_ < queue_.size()) {
    Worker& worker = workers_.emplace_back();
    worker.thread = std::thread{[this, &worker] { run(worker); }};
  }
  wake_.notify_one();
  return true;
}

void ConnectWorkers::run(Worker& worker) {
  sigset_t mask;
  ::sigfillset(&mask);
  ::sigdelset(&mask, kInterruptSignal);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  std::unique_lock lock{mutex_};
  worker.handle = ::pthread_self();
  for (;;) {
    ++waiting_;
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    --waiting_;
    if (queue_.empty()) return;
    ConnectCall call = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    worker.interrupt = 0;
    worker.tid = call.tid;
    worker.signal_looks = worker.frozen_looks = 0;
    worker.notification = call.notification;  // registered before the call: whoever looks later interrupts it
    lock.unlock();
    perform(worker, call);
    call.socket.reset();
    lock.lock();
    worker.notification = 0;
    --running_;
    idle_.notify_all();
  }
}

void ConnectWorkers::perform(Worker& worker, ConnectCall& call) {
  sockaddr_storage storage;
  const socklen_t size = call.destination.to_sockaddr(storage);
  for (bool again = false;; again = true) {
    if (const int error = worker.interrupt.load(); error != 0) {
      channel_.answer(call.notification, error);
      return;
    }
    const int error = ::connect(call.socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0 ? 0 : errno;
    if (error != EINTR) {
      // After an interruption the first connect may have succeeded.
      channel_.answer(call.notification, again && error == EISCONN ? 0 : error);
      return;
    }
    if (!channel_.valid(call.notification)) return;
  }
}

bool ConnectWorkers::watch(bool frozen) {
  const std::lock_guard lock{mutex_};
  for (auto& worker : workers_) {
    const std::uint64_t notification = worker.notification.load();
    if (notification == 0) continue;
    const PendingSignals pending = pending_signals(worker.tid);
    worker.signal_looks = pending.any() ? worker.signal_looks + 1 : 0;
    if (worker.signal_looks >= 2) worker.interrupt = pending.certain() ? kErestartsys : EINTR;
    if (frozen && ++worker.frozen_looks >= 2) worker.interrupt = ECANCELED;  // its task could not be stopped otherwise
    if (worker.interrupt.load() != 0 || !channel_.valid(notification)) ::pthread_kill(worker.handle, kInterruptSignal);
  }
  return running_ + queue_.size() > 0;
}

void ConnectWorkers::cancel_all() {
  std::unique_lock lock{mutex_};
  for (auto& call : queue_) channel_.answer(call.notification, ECANCELED);
  queue_.clear();
  while (running_ > 0) {
    // Again and again: a signal between the check and the call would be lost otherwise.
    for (auto& worker : workers_) {
      if (worker.notification.load() == 0) continue;
      worker.interrupt = ECANCELED;
      ::pthread_kill(worker.handle, kInterruptSignal);
    }
    idle_.wait_for(lock, std::chrono::milliseconds{10});
  }
}

void ConnectWorkers::stop() {
  cancel_all();
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_)
    if (worker.thread.joinable()) worker.thread.join();
}

void PeerNameTable::remember(std::uint64_t cookie, const SocketAddress& destination) {
  const std::lock_guard lock{mutex_};
  if (names_.insert_or_assign(cookie, destination).second) order_.push_back(cookie);
  while (names_.size() > Broker::kMaxPeerNames) {
    names_.erase(order_.front());
    order_.pop_front();
  }
}

std::optional<SocketAddress> PeerNameTable::find(std::uint64_t cookie) const {
  const std::lock_guard lock{mutex_};
  const auto it = names_.find(cookie);
  return it == names_.end() ? std::nullopt : std::optional{it->second};
}

}  // namespace openshell::isolation
