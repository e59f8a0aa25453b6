// The inside of the broker: receiver threads, the workers for what may block, the watchdog. See broker.hpp for what it promises.
#pragma once

#include <linux/seccomp.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "isolation/bridge.hpp"
#include "isolation/broker.hpp"
#include "isolation/notify_channel.hpp"
#include "isolation/open_table.hpp"
#include "isolation/signal_mediator.hpp"

namespace openshell::isolation {

/// Addresses that sockets asked for, by cookie, for getpeername in PeerNames::Notified. Bounded; the oldest entry goes.
class PeerNameTable {
 public:
  void remember(std::uint64_t cookie, const SocketAddress& destination);
  [[nodiscard]] std::optional<SocketAddress> find(std::uint64_t cookie) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, SocketAddress> names_;
  std::deque<std::uint64_t> order_;
};

/// Threads for connects on loopback that may block, made on demand. A worker is interrupted by SIGUSR2 as long as it is registered and its
/// notification is dead or the broker stops.
class ConnectWorkers {
 public:
  explicit ConnectWorkers(const NotifyChannel& channel) : channel_{channel} {}
  ~ConnectWorkers() { stop(); }

  /// False: all are busy.
  bool submit(ConnectCall call);
  /// Interrupts calls whose task is gone or got a signal, and while frozen every one that blocks. True while any runs.
  bool watch(bool frozen);
  /// Answers every running call with ECANCELED; returns when none runs.
  void cancel_all();
  void stop();

 private:
  struct Worker {
    std::thread thread;
    pthread_t handle{};
    std::atomic<std::uint64_t> notification{0};  ///< 0: idle
    std::atomic<int> interrupt{0};               ///< the errno value to end the call with
    pid_t tid = 0;
    int signal_looks = 0, frozen_looks = 0;
  };
  void run(Worker& worker);
  void perform(Worker& worker, ConnectCall& call);

  const NotifyChannel& channel_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<ConnectCall> queue_;
  std::list<Worker> workers_;
  std::size_t waiting_ = 0, running_ = 0;
  bool stop_ = false;
};

class Broker::Impl {
 public:
  Impl(Options options, FileDescriptor listener, OpenDecider& decider);
  ~Impl();

  absl::Status start();
  absl::Status deny(OpenId id, DenyReason reason);
  void freeze();
  void resume();
  [[nodiscard]] BrokerStatistics statistics() const;

  Options options;
  NotifyChannel channel;
  Bridge bridge;
  OpenTable opens;
  IdentityReader identities;
  std::atomic<bool> healthy{true};

 private:
  void receive_loop();
  void handle(const seccomp_notif& notification);
  void on_socket(const seccomp_notif& notification);
  void on_connect(const seccomp_notif& notification);
  void on_getpeername(const seccomp_notif& notification);
  void connect_inet(ConnectCall call, int type);
  void connect_external(ConnectCall call);
  [[nodiscard]] bool is_external_loopback(const SocketAddress& destination) const;

  void identity_loop();
  void watchdog_loop();
  void wake_watchdog(std::chrono::steady_clock::time_point needed);

  /// Sockets are pinned to lo. For UDP that is left to routing where it refuses all other destinations, since a pinned socket passes it by:
  /// the workload would send into nothing and hear of no error. [RT-34]
  const bool pins_datagrams_;
  ConnectWorkers workers_;
  SignalMediator signals_;
  PeerNameTable peer_names_;
  std::atomic<bool> stop_{false}, frozen_{false};
  FileDescriptor stop_event_;
  std::vector<std::thread> receivers_;
  std::atomic<unsigned> receivers_left_{0};

  std::mutex identity_mutex_;
  std::condition_variable identity_wake_;
  std::deque<std::pair<OpenId, pid_t>> identity_queue_;  ///< bounded by the pending opens
  std::vector<std::thread> identity_threads_;

  std::mutex watchdog_mutex_;
  std::condition_variable watchdog_wake_;
  std::chrono::steady_clock::time_point watchdog_next_ = std::chrono::steady_clock::time_point::max();
  std::thread watchdog_;

  std::atomic<std::uint64_t> notifications_{0}, sockets_{0}, connects_{0}, continued_{0}, refused_capacity_{0};
};

/// SIGUSR2 gets a handler that does nothing and does not restart: it ends a blocking call of a broker thread. FailedPrecondition when
/// somebody else has a handler there.
absl::Status reserve_interrupt_signal();
constexpr int kInterruptSignal = 12;  // SIGUSR2

}  // namespace openshell::isolation
