#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "isolation/boundary/framing.hpp"
#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/serial_queue.hpp"

namespace openshell::egress {
class Engine;
}

namespace openshell::supervisor {

/// The one Mediate stream: DNS questions of the workload, answered by the engine's policy DNS. Reopened with back-off when it ends; a
/// question that cannot be read is answered with an error and never ends the stream.
class DnsMediator : public std::enable_shared_from_this<DnsMediator> {
 public:
  struct Limits {
    std::size_t in_flight = 512;  ///< questions; more are dropped, as the resolver of the workload expects of a lost datagram
    std::chrono::milliseconds first_backoff{100};
    std::chrono::milliseconds longest_backoff{5'000};
  };

  DnsMediator(std::shared_ptr<BoundaryClient> client, egress::Engine& engine, std::shared_ptr<TimerThread> timers, Limits limits)
      : client_{std::move(client)}, engine_{engine}, timers_{std::move(timers)}, limits_{limits} {}

  void start();
  void stop();

 private:
  void open();
  void opened(absl::StatusOr<Opened> result);
  void read();
  void received(absl::StatusOr<std::string> bytes);
  void question(const boundary::MediationFrame& frame);
  void reply(std::uint64_t epoch, std::uint64_t stream_id, const boundary::DnsAnswer& answer);
  void write_next();
  void reopen(bool transport);

  const std::shared_ptr<BoundaryClient> client_;
  egress::Engine& engine_;
  const std::shared_ptr<TimerThread> timers_;
  const Limits limits_;
  SerialQueue serial_;  // everything below is touched by it only
  std::shared_ptr<egress::ByteStream> stream_;
  boundary::MediationFrameDecoder decoder_;
  std::deque<std::string> outgoing_;  // the front is being written
  std::size_t in_flight_ = 0;
  std::uint64_t epoch_ = 0;  // of the stream; answers of an older one are dropped
  std::chrono::milliseconds backoff_{0};
  bool stopped_ = false;
};

}  // namespace openshell::supervisor
