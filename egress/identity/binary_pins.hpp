// Trust on first use: the file that a path named when it first asked for the network is the only one it may ever be (BIN rows).
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <string>
#include <unordered_map>

#include "egress/open_intent.hpp"

namespace openshell::egress {

/// One per supervisor; lives as long. One thread.
class BinaryPins {
 public:
  static constexpr std::size_t kMaxPaths = 4096;

  /// Checks the whole chain, then pins all of it or nothing. UNAUTHENTICATED: who calls cannot be relied on. RESOURCE_EXHAUSTED: no room
  /// for a new path. No message holds a digest.
  absl::Status verify(const SuppliedIdentity& identity);
  [[nodiscard]] std::size_t size() const noexcept { return pins_.size(); }

 private:
  std::unordered_map<std::string, std::string> pins_;  // path -> SHA-256
};

}  // namespace openshell::egress
