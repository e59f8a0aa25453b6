// Raw bytes between a TCP socket inside the namespace and a call of the supervisor: allowed connects of the workload, and connects of the
// supervisor to the workload's own servers. One read is outstanding per direction, so a side that does not read stops the other.
//
// A gRPC server can not end its direction without ending the call: the end of the socket's direction is one empty chunk, the call ends when
// both have.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "actors/sandbox/call.hpp"
#include "actors/sandbox/socket_handover.hpp"
#include "isolation/boundary/framing.hpp"
#include "isolation/file_descriptor.hpp"

namespace openshell::sandbox {

class SocketRelay;

/// The stream of an accept_network: first one decision frame, then, if it is RelayReady, the relay.
class OpenStream : public CallStream, public std::enable_shared_from_this<OpenStream> {
 public:
  using Decide = std::function<void(boundary::OpenDecision)>;

  /// `decide` runs at most once, on the executor: with the supervisor's decision, or with mediation_unavailable when it broke off.
  /// `handover` takes the socket where the decision asks for it; null: such an open ends broken.
  OpenStream(boost::asio::io_context& io, std::shared_ptr<SocketHandover> handover, Decide decide);
  ~OpenStream() override;

  /// From any thread, after a decision of RelayReady: the connected socket. An invalid one: the connect is over, the call ends.
  void established(isolation::FileDescriptor socket);
  /// The open is over without a decision.
  void drop(const std::string& why);

  void start(std::shared_ptr<Call> call) override;
  void received(std::string bytes) override;
  void received_end() override;
  void written() override;
  void ended() override;

 private:
  void take(std::string bytes);
  void hand_over(const isolation::FileDescriptor& socket);
  void decided(boundary::OpenDecision decision);
  boost::asio::io_context& io_;
  std::shared_ptr<SocketHandover> handover_;
  Decide decide_;  // empty once called
  std::shared_ptr<Call> call_;
  std::shared_ptr<SocketRelay> relay_;
  boundary::ProcessFrameDecoder decoder_;
  std::string rest_;  // relay bytes behind the decision
  bool decided_ = false, over_ = false, hand_over_ = false;
};

/// Connects to `host`:`port` (a loopback or own address literal), answers the call and relays. `invalid` for another address, `unavailable`
/// when nobody listens.
void serve_loopback_connect(boost::asio::io_context& io, std::shared_ptr<Call> call);

}  // namespace openshell::sandbox
