#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "messages/secret.hpp"

namespace openshell::api {

/// One bearer and the moment after which it must not be sent. `expires` of epoch 0 means never.
struct Bearer {
  Secret token;
  std::chrono::sys_seconds expires{};
};

/// Both bearers of a supervisor: one for the gateway, one for the sandbox runtime. They belong together, so they change together.
struct TokenPair {
  Bearer gateway;
  Bearer sandbox;
  std::string session_id;
  std::uint64_t epoch = 1;  ///< credential epoch, 1 or more; never goes back
};

/// The only place of the process where its bearers live. Any thread.
/// An expired token is never handed out; a renewal with one half missing, another session or an older epoch changes nothing. [spec: gateway
/// client]
class TokenSlots {
 public:
  using Now = std::chrono::system_clock::time_point;

  explicit TokenSlots(TokenPair first) : pair_{std::move(first)} {}

  /// The value of an `authorization` header: "Bearer <token>". Unauthenticated when it has expired.
  [[nodiscard]] absl::StatusOr<Secret> gateway_authorization(Now now) const;
  [[nodiscard]] absl::StatusOr<Secret> sandbox_authorization(Now now) const;

  /// InvalidArgument and no change when the pair is not a renewal of what is installed.
  absl::Status replace(TokenPair renewed);

  /// How long to wait with the next renewal: 80 % of the shorter life that is left, 1 s at least and 12 h at most, 6 h where neither
  /// expires, 1 s where one has expired already. `jitter` in 0..1 shortens it by up to 9 %.
  [[nodiscard]] std::chrono::seconds until_renewal(Now now, double jitter) const;

  /// Counts successful renewals: whoever waits for one compares.
  [[nodiscard]] std::uint64_t renewals() const;
  [[nodiscard]] std::uint64_t epoch() const;

 private:
  mutable std::mutex mutex_;
  TokenPair pair_;
  std::uint64_t renewals_ = 0;
};

}  // namespace openshell::api
