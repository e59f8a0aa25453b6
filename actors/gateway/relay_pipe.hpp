// The bytes of a relay, between two gRPC streams of this process, without an actor in between. Each direction is a bounded buffer: who
// writes more than the other side takes is told to wait, and that is how a slow reader slows a process in a sandbox.
// [CX rows]
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace openshell::gateway {

/// Bytes that one direction of a relay holds before its writer has to wait.
inline constexpr std::size_t kRelayBuffer = 65'536;

namespace relay_internal {
struct RelayShared;
}

/// One side of a relay. Thread-safe; callbacks run on the thread of whoever caused them, without a lock held, and must be short.
/// When a side is destroyed without `end_output` or `abort`, the relay is aborted: a broken stream never looks like an end.
class RelayEnd {
 public:
  RelayEnd(std::shared_ptr<relay_internal::RelayShared> shared, int side);
  ~RelayEnd();
  RelayEnd(const RelayEnd&) = delete;
  RelayEnd& operator=(const RelayEnd&) = delete;

  /// Hands bytes to the other side. `room` is called once as soon as more may be written (at once where there is room), or never after an
  /// abort. Writing after `end_output` is ignored.
  void write(std::string bytes, std::function<void()> room);
  /// No more bytes from this side; the other direction goes on.
  void end_output();
  /// Asks for bytes, once: `then(bytes)` with at least one byte, or `then("")` when the other side ended its output. After an abort
  /// `failed` is called instead.
  void read(std::function<void(std::string)> then, std::function<void(absl::Status)> failed);
  /// Ends both directions at once; the first abort wins, bytes on the way may be lost.
  void abort(absl::Status why);
  /// Called once when the relay is aborted, by either side. At once if it was.
  void on_abort(std::function<void(absl::Status)> callback);

 private:
  std::shared_ptr<relay_internal::RelayShared> shared_;
  int side_;
};

/// Two connected sides.
struct RelayPair {
  std::shared_ptr<RelayEnd> requester, supervisor;
};
RelayPair make_relay();

}  // namespace openshell::gateway
