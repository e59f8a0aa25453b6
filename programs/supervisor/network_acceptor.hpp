#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>

#include "programs/supervisor/boundary_client.hpp"

namespace openshell::egress {
class Engine;
}

namespace openshell::supervisor {

/// Takes the opens of the workload from the boundary and hands each with its stream to the egress engine.
/// It keeps a few `accept_network` calls waiting; waiting and live streams together are bounded, so that relays that nobody reads leave
/// room on the connection for DNS, control and exec. The open that is one too many waits in the sandbox. Any thread.
class NetworkAcceptor : public std::enable_shared_from_this<NetworkAcceptor> {
 public:
  struct Limits {
    std::size_t waiting = 8;      ///< accepts that wait for an open
    std::size_t streams = 1'024;  ///< waiting and live
    std::chrono::milliseconds first_backoff{100};
    std::chrono::milliseconds longest_backoff{5'000};
  };

  NetworkAcceptor(std::shared_ptr<BoundaryClient> client, egress::Engine& engine, std::shared_ptr<TimerThread> timers, Limits limits)
      : client_{std::move(client)}, engine_{engine}, timers_{std::move(timers)}, limits_{limits} {}

  void start();
  /// No further open is taken. Live streams go on until the engine ends them.
  void stop();
  [[nodiscard]] std::size_t live() const;
  /// How often an open had to wait because every stream was in use.
  [[nodiscard]] std::uint64_t times_full() const;

 private:
  void fill();
  void accepted(absl::StatusOr<Opened> opened);
  void failed(bool transport);
  void serve(const boundary::NetworkConnected& open, std::shared_ptr<egress::ByteStream> stream);
  void closed();

  const std::shared_ptr<BoundaryClient> client_;
  egress::Engine& engine_;
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::size_t waiting_ = 0;
  std::size_t live_ = 0;
  std::uint64_t times_full_ = 0;
  std::chrono::milliseconds backoff_{0};
  bool paused_ = false;
  bool stopped_ = false;
};

}  // namespace openshell::supervisor
