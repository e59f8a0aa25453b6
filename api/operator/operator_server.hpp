// The operator interface of the gateway: read-only pages and data about the running process, on a Unix socket for whoever runs it and, if
// wanted, on a loopback port for a browser; and the metrics port. Health and gRPC are elsewhere. [ACT-37, ACT-40]
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/operator/actor_source.hpp"

namespace openshell::api {

inline constexpr std::size_t kOperatorConnections = 32;  ///< at once on each listener; more wait in the backlog
inline constexpr std::size_t kOperatorStreams = 16;      ///< of changes, in all; more: 503
inline constexpr std::size_t kOperatorHead = 8'192;      ///< bytes of a request's head
inline constexpr std::size_t kOperatorBody = 1'024;      ///< bytes of a request's body
inline constexpr int kOperatorHeadSeconds = 5;
inline constexpr int kOperatorIdleSeconds = 30;   ///< between two requests of a connection
inline constexpr int kOperatorWriteSeconds = 10;  ///< without a byte taken

struct OperatorAddress {
  std::string ip;  ///< literal
  std::uint16_t port = 0;
};

struct OperatorOptions {
  std::string socket;                         ///< absolute path of the Unix socket; empty: none (tests)
  std::optional<OperatorAddress> browser;     ///< loopback; port 0 takes a free one (tests)
  std::optional<OperatorAddress> metrics;     ///< serves /metrics and nothing else
  std::string gateway_id;                     ///< names the process of the gateway
  std::function<std::string()> metrics_text;  ///< what `/metrics` says besides the actors
};

/// Runs on one thread of its own. Is destroyed after whatever answers for the source has ended, since an answer may be on its way.
class OperatorServer {
 public:
  /// Binds everything or nothing. FAILED_PRECONDITION or UNAVAILABLE name the listener.
  static absl::StatusOr<std::unique_ptr<OperatorServer>> bind(OperatorOptions options);
  virtual ~OperatorServer() = default;
  /// Begins to accept.
  virtual void open(std::shared_ptr<ActorSource> actors) = 0;
  /// Ends every connection and joins the thread; the socket's file and the source go. Nothing is asked afterwards.
  virtual void close() = 0;
  [[nodiscard]] virtual std::uint16_t browser_port() const = 0;
};

}  // namespace openshell::api
