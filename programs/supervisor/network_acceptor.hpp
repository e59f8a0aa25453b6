#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/handover_line.hpp"

namespace openshell::egress {
class Engine;
}

namespace openshell::supervisor {

class DecidedStream;

/// Takes the opens of the workload from the boundary and hands each with its stream to the egress engine.
/// It keeps a few `accept_network` calls waiting, always: the open that is one too many is taken too, and the engine, whose bound it is,
/// refuses it at once (EAGAIN in the workload), so that nothing hangs. Live streams are bounded above that, so that a runtime that never
/// ends its refused streams leaves room on the connection for DNS, control and exec. Any thread.
class NetworkAcceptor : public std::enable_shared_from_this<NetworkAcceptor> {
 public:
  struct Limits {
    std::size_t waiting = 8;      ///< accepts that wait for an open
    std::size_t streams = 1'024;  ///< live relays; EngineOptions::max_streams is the same number
    std::size_t refusals = 64;    ///< further streams, each on its way to its refusal
    std::chrono::milliseconds first_backoff{100};
    std::chrono::milliseconds longest_backoff{5'000};
  };

  /// `handover` may be null. The engine outlives every stream.
  NetworkAcceptor(std::shared_ptr<BoundaryClient> client, egress::Engine& engine, std::shared_ptr<HandoverLine> handover,
                  std::shared_ptr<TimerThread> timers, Limits limits)
      : client_{std::move(client)}, engine_{engine}, handover_{std::move(handover)}, timers_{std::move(timers)}, limits_{limits} {}

  void start();
  /// No further open is taken. Live streams go on until the engine ends them.
  void stop();
  [[nodiscard]] std::size_t live() const;
  /// How often even the room for refusals was used up, so that further opens had to wait in the sandbox.
  [[nodiscard]] std::uint64_t times_full() const;

 private:
  void fill();
  void accepted(const std::string& id, absl::StatusOr<Opened> opened);
  void failed(bool transport);
  void serve(const std::string& id, const boundary::NetworkConnected& open, std::shared_ptr<egress::ByteStream> call);
  void decided(const std::string& id, const std::shared_ptr<DecidedStream>& stream, boundary::OpenDecision decision);
  void closed(const std::string& id);

  const std::shared_ptr<BoundaryClient> client_;
  egress::Engine& engine_;
  const std::shared_ptr<HandoverLine> handover_;
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
