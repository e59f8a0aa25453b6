// The external connects that wait for a decision: their states, clocks and answers.
//
//   Waiting --5 ms, non-blocking--> Held --allow/deny/30 s--> done          (the caller has EINPROGRESS)
//      |  ^                                                                 (Waiting: the caller is in its connect call)
//      |  '-- the same socket connects again -- Detached <-- a signal ends the call
//      '--allow/deny/30 s/task gone--> done
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "isolation/bridge.hpp"
#include "isolation/broker.hpp"
#include "isolation/notify_channel.hpp"

namespace openshell::isolation {

/// One notified connect with everything copied from the task.
struct ConnectCall {
  std::uint64_t notification = 0;
  pid_t tid = 0;
  FileDescriptor socket;  ///< duplicate of the workload's
  std::uint64_t cookie = 0;
  SocketAddress destination;  ///< the caller's form
  bool nonblocking = false;
  std::chrono::steady_clock::time_point received;
};

/// Thread-safe. No method is called with a lock of the decider held.
class OpenTable {
 public:
  struct Limits {
    std::size_t pending = Broker::kMaxPendingOpens;
    std::chrono::milliseconds fast_path{5}, timeout{30'000};
  };

  OpenTable(Limits limits, const NotifyChannel& channel, Bridge& bridge, OpenDecider& decider);

  /// What became of a new connect: an id to ask the decider about, or nothing more to do (answered, or joined to an open that waits
  /// already).
  std::optional<OpenId> begin(ConnectCall call);
  /// Hands an open to the decider; ignored when it is over meanwhile.
  void ask(OpenId id, absl::StatusOr<BinaryIdentity> identity);

  absl::StatusOr<FileDescriptor> allow(OpenId id);
  absl::Status deny(OpenId id, DenyReason reason);

  /// Applies the clocks; returns when it wants to be called next, time_point::max() when nothing waits.
  std::chrono::steady_clock::time_point tick(std::chrono::steady_clock::time_point now);

  /// Ends all opens; from `frozen` on new ones are ECANCELED.
  void end_all(OpenEnd why);
  void set_frozen(bool frozen);

  OpenDecider& exchange_decider(OpenDecider& decider) { return *decider_.exchange(&decider); }
  [[nodiscard]] std::size_t size() const;
  void add_to(BrokerStatistics& statistics) const;

 private:
  enum class State { Waiting, Held, Detached, Done };
  struct Open {
    std::mutex mutex;  ///< held over system calls for this open; never together with the table's, except in the order table, open
    OpenId id = 0;
    State state = State::Waiting;
    std::uint64_t cookie = 0;
    SocketAddress destination;
    bool nonblocking = false;
    FileDescriptor socket;
    std::uint64_t notification = 0;  ///< 0: no call waits
    pid_t tid = 0;
    std::unique_ptr<Bridge::Hold> hold;
    std::chrono::steady_clock::time_point received, deadline, next_signal_look;
    int signal_looks = 0;
    bool asked = false;
    bool holdable = true;
    std::optional<OpenEnd> unannounced;
  };
  using OpenPtr = std::shared_ptr<Open>;

  OpenPtr find(OpenId id) const;
  std::optional<OpenId> begin_new(ConnectCall call);
  void join(Open& open, ConnectCall call);
  void forget(const Open& open);
  void finish(Open& open, int error, std::optional<OpenEnd> why);
  void announce(Open& open);
  void try_hold(Open& open);
  void look_for_signals(Open& open);
  bool tick_one(Open& open, std::chrono::steady_clock::time_point now, std::chrono::steady_clock::time_point& next);

  const Limits limits_;
  const NotifyChannel& channel_;
  Bridge& bridge_;
  std::atomic<OpenDecider*> decider_;
  mutable std::mutex mutex_;
  bool frozen_ = false;
  OpenId next_id_ = 1;
  std::unordered_map<OpenId, OpenPtr> by_id_;
  std::unordered_map<std::uint64_t, OpenPtr> by_cookie_;
  std::unordered_map<std::uint64_t, std::chrono::steady_clock::time_point>
      connected_detached_;  ///< cookies whose interrupted connect succeeded behind the caller's back
  std::atomic<std::uint64_t> opens_{0}, allowed_{0}, denied_{0}, timed_out_{0}, cancelled_{0}, held_{0}, refused_capacity_{0};
};

}  // namespace openshell::isolation
