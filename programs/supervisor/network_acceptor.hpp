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

/// Takes the opens of the workload from the boundary and hands each with its stream to the egress engine. They come over the line, where
/// there is one (handover_line.hpp), and else over `accept_network` calls, of which it keeps a few waiting, always: the open that is one
/// too many is taken too, and the engine, whose bound it is, refuses it at once (EAGAIN in the workload), so that nothing hangs. Live
/// streams are bounded above that, so that a runtime that never ends its refused streams leaves room on the connection for DNS, control and
/// exec. Any thread.
class NetworkAcceptor : public std::enable_shared_from_this<NetworkAcceptor> {
 public:
  struct Limits {
    std::size_t waiting = 8;      ///< accepts that wait for an open where there is no line
    std::size_t beside_line = 2;  ///< the same where there is one, which carries all but a few
    std::size_t streams = 1'024;  ///< live relays: EngineOptions::max_streams
    std::size_t refusals = 64;    ///< further streams, each on its way to its refusal
    std::chrono::milliseconds first_backoff{100};
    std::chrono::milliseconds longest_backoff{5'000};
  };

  /// The engine outlives every stream.
  NetworkAcceptor(std::shared_ptr<BoundaryClient> client, egress::Engine& engine, std::shared_ptr<TimerThread> timers, Limits limits)
      : client_{std::move(client)}, engine_{engine}, timers_{std::move(timers)}, limits_{limits} {}

  void start();
  /// An open that came over the line. Any thread.
  void take(const std::string& ticket, const boundary::NetworkConnected& open, std::shared_ptr<egress::ByteStream> call);
  /// Before `start`: where sockets are handed over. The line tells of opens too.
  void use_line(std::shared_ptr<HandoverLine> line) { handover_ = std::move(line); }
  /// No further open is taken. Live streams go on until the engine ends them.
  void stop();
  [[nodiscard]] std::size_t live() const;

 private:
  void fill();
  void accepted(const std::string& id, absl::StatusOr<Opened> opened);
  void failed(bool transport);
  void serve(const std::string& id, const boundary::NetworkConnected& open, std::shared_ptr<egress::ByteStream> call);
  void decided(const std::string& id, const std::shared_ptr<DecidedStream>& stream, boundary::OpenDecision decision);
  void closed(const std::string& id);

  const std::shared_ptr<BoundaryClient> client_;
  egress::Engine& engine_;
  std::shared_ptr<HandoverLine> handover_;  // null: bytes go over calls
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::size_t waiting_ = 0;
  std::size_t live_ = 0;
  std::chrono::milliseconds backoff_{0};
  bool told_full_ = false;
  bool paused_ = false;
  bool stopped_ = false;
};

}  // namespace openshell::supervisor
