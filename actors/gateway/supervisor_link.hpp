#pragma once

#include <absl/status/status.h>

namespace openshell::v1 {
class GatewayMessage;
}

namespace openshell::gateway {

/// Messages that may wait for one supervisor's transport; beyond that its session is closed.
inline constexpr int kMaxQueuedToSupervisor = 64;

/// The way to one connected supervisor, implemented by the handler of ConnectSupervisor. Thread-safe, never blocks.
class SupervisorLink {
 public:
  virtual ~SupervisorLink() = default;
  /// False when the stream is over or its queue is full.
  virtual bool send(const openshell::v1::GatewayMessage& message) = 0;
  /// Ends the stream.
  virtual void close(const absl::Status& status) = 0;
};

}  // namespace openshell::gateway
