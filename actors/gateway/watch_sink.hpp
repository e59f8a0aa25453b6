#pragma once

#include <absl/status/status.h>

namespace openshell::v1 {
class SandboxStreamEvent;
}

namespace openshell::gateway {

/// Events that may wait for one watching client; what comes beyond is counted and told as a warning, the stream goes on.
inline constexpr int kMaxQueuedToWatcher = 256;

/// The way to one watching client, implemented by the handler of WatchSandbox. Thread-safe, never blocks.
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  virtual bool closed() const = 0;
  /// False when the queue is full: the event is lost to this client.
  virtual bool push(const openshell::v1::SandboxStreamEvent& event) = 0;
  virtual void close(const absl::Status& status) = 0;
};

}  // namespace openshell::gateway
