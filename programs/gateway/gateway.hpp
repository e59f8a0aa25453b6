// The running gateway: every part in the order in which it starts, and the reverse on the way out.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "programs/gateway/config.hpp"

namespace openshell::gateway {

class Gateway {
 public:
  /// On an error nothing stays: no socket, no thread, no sandbox was started.
  static absl::StatusOr<std::unique_ptr<Gateway>> start(const GatewayConfig& config);
  virtual ~Gateway() = default;
  /// "https://127.0.0.1:17670".
  [[nodiscard]] virtual std::string endpoint() const = 0;
  /// Ends calls, then the control plane (which stops sandboxes unless they are to be kept), then everything else. Blocks.
  virtual absl::Status stop() = 0;
};

}  // namespace openshell::gateway
