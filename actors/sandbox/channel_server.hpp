// The server end of the channel: the listening socket, who may speak at all, TLS, and one small gRPC server per connection. R-15..R-23.
//
// Accept -> SO_PEERCRED and no descendant of ours -> TLS 1.3 with client certificate, within 5 s -> a socketpair whose other end gRPC
// serves. Bytes are pumped between the two by the channel's own thread, so the moment at which a connection ends is seen whatever gRPC does
// with it. Each connection has a gRPC server object of its own: a call knows its connection by construction, and nothing is looked up by
// descriptor number.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "actors/sandbox/call.hpp"
#include "isolation/boundary/launch_material.hpp"
#include "isolation/boundary/session_token.hpp"
#include "isolation/file_descriptor.hpp"

namespace openshell::sandbox {

class ChannelServer {
 public:
  static constexpr std::size_t kMaxHandshakes = 32;  ///< unauthenticated at a time; the next is closed at accept
  static constexpr std::chrono::seconds kHandshakeDeadline{5};
  static constexpr std::size_t kMaxConnections = 128;  ///< authenticated at a time
  static constexpr int kMaxStreams = 1'152;            ///< per connection: 1,024 for TCP, 128 for everything else
  static constexpr std::chrono::seconds kFirstFrameDeadline{30};
  static constexpr std::chrono::milliseconds kPingInterval{5'000};
  static constexpr std::chrono::milliseconds kPingTimeout{10'000};

  struct Options {
    boundary::Listener listener;
    std::string certificate_chain_pem;
    Secret private_key_pem;  ///< wiped once the TLS context holds the key
    std::string client_ca_pem;
    boundary::SessionTokenVerifier verifier;
    std::chrono::milliseconds handshake_deadline = kHandshakeDeadline;  ///< tests shorten it
  };

  /// What happens, on threads of the channel or of gRPC; must not block.
  struct Events {
    std::function<void(ConnectionNumber)> opened;
    std::function<void(ConnectionNumber)> closed;  ///< once per opened
    std::function<void(std::shared_ptr<Call>)> request;
    /// A Unix connection whose handshake chose boundary::kHandoverAlpn; it is not counted as a connection. Empty: such are closed.
    std::function<void(isolation::FileDescriptor)> handover = {};
  };

  /// Binds and listens; serves at once. Unix sockets get mode 0660; a stale socket file is replaced. Unimplemented for vsock.
  static absl::StatusOr<std::unique_ptr<ChannelServer>> start(Options options, Events events);
  ~ChannelServer();
  ChannelServer(const ChannelServer&) = delete;
  ChannelServer& operator=(const ChannelServer&) = delete;

  /// From any thread. The close event follows.
  void close(ConnectionNumber connection);
  /// The port in use, for the broker to reserve; 0 with a Unix socket.
  [[nodiscard]] std::uint16_t port() const;

  class Impl;

 private:
  explicit ChannelServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Whether `pid` descends from this process; true also when its chain of parents can not be read: who may be a descendant is one. A pid of
/// 0 is a process outside our pid namespace and none.
[[nodiscard]] bool is_own_descendant(pid_t pid);

}  // namespace openshell::sandbox
