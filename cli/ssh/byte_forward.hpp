#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace openshell::v1 {
class TcpForwardInit;
class TcpForwardFrame;
}  // namespace openshell::v1

namespace openshell::cli {

/// One ForwardTcp call: bytes to and from a port or the SSH server of a sandbox. Blocking; one thread may write while another reads.
class ByteForward {
 public:
  static constexpr std::size_t kChunk = 65'536;  ///< bytes of one frame

  virtual ~ByteForward() = default;
  /// False: the call is over; `read` says why.
  virtual bool write(std::string bytes) = 0;
  virtual void end_output() = 0;
  /// Bytes; "" once when the target ended its output; nullopt when the call ended, in order. An error of the gateway, or of a peer that
  /// sends after its end.
  virtual absl::StatusOr<std::optional<std::string>> read() = 0;
  /// Ends the call from any thread.
  virtual void cancel() = 0;
};

}  // namespace openshell::cli
