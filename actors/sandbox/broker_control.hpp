#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <memory>

#include "actors/introspection/reporter.hpp"
#include "actors/sandbox/relay_stream.hpp"
#include "isolation/broker.hpp"
#include "messages/sandbox.hpp"

namespace openshell::sandbox {

/// One external connect from its arrival to its relay.
struct NetworkOpen {
  isolation::OpenRequest request;
  std::chrono::steady_clock::time_point queued;  ///< when it reached the queue
  std::shared_ptr<OpenStream> stream;            ///< once a call took it
};

/// What BrokerControl asks of the broker; a seam so that the pairing can be tested without a kernel.
class OpenGate {
 public:
  virtual ~OpenGate() = default;
  virtual absl::StatusOr<isolation::FileDescriptor> allow(isolation::OpenId id) = 0;
  virtual void deny(isolation::OpenId id, isolation::DenyReason reason) = 0;
  virtual void freeze() = 0;
  virtual void resume() = 0;
  /// Of all opens, those of the line included.
  virtual isolation::BrokerStatistics statistics() const = 0;
};
std::shared_ptr<OpenGate> make_open_gate(isolation::Broker& broker);

struct BrokerControlState {
  static constexpr std::size_t kMaxQueuedOpens = 256;       ///< waiting for a call; more are ResourceExhausted
  static constexpr std::size_t kMaxWaitingAccepts = 1'024;  ///< as many as streams for TCP
  Reporter reporter;
  std::shared_ptr<OpenGate> gate;
  boost::asio::io_context* io = nullptr;
  std::shared_ptr<SocketHandover> handover;  ///< null: relays go over their calls
  std::deque<std::shared_ptr<NetworkOpen>> opens;
  std::deque<std::shared_ptr<Call>> accepts;
  std::map<isolation::OpenId, std::shared_ptr<NetworkOpen>> paired;  // until decided or ended
  bool frozen = false;
  inline static const char* name = "broker_control";
};

/// Spawn detached.
BrokerControl::behavior_type broker_control(BrokerControl::stateful_pointer<BrokerControlState> self, std::shared_ptr<OpenGate> gate,
                                            boost::asio::io_context* io, std::shared_ptr<SocketHandover> handover, Directory directory);

/// The broker's decider: hands what the broker threads say to the actor.
class ActorDecider final : public isolation::OpenDecider {
 public:
  void serve(BrokerControl actor) { actor_ = std::move(actor); }  ///< before the first open
  /// Opens go over the line while there is one: what takes a mailbox and a call there is one message here. Before the first open.
  void prefer(std::shared_ptr<SocketHandover> line) { line_ = std::move(line); }
  void open(isolation::OpenRequest request) override;
  void ended(isolation::OpenId id, isolation::OpenEnd why) override;

 private:
  BrokerControl actor_;
  std::shared_ptr<SocketHandover> line_;
};

/// How the line carries decisions out.
SocketHandover::Gate line_gate(std::shared_ptr<OpenGate> gate);

/// The identity as it crosses the channel.
[[nodiscard]] boundary::ProcessIdentity identity_of(const absl::StatusOr<isolation::BinaryIdentity>& identity);

}  // namespace openshell::sandbox
