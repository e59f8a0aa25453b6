// What authentication asks of whoever owns the sandbox records. Implemented by the actor side (api/sandboxes); called on gRPC threads,
// answered on any thread.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "messages/values.hpp"

namespace openshell::api {

/// The rotation that a supervisor may repeat because it did not see the answer. All or none of it is in the record.
struct RefreshReplay {
  std::string previous_token_id;
  std::string request_hash;       ///< lower-case hex SHA-256 of the names asked for
  std::string rotation_id;        ///< UUID from which the new token ids are derived
  std::int64_t issued_at = 0;     ///< Unix seconds
  std::int64_t replay_until = 0;  ///< Unix seconds
  friend bool operator==(const RefreshReplay&, const RefreshReplay&) = default;
};

/// The identity part of a sandbox's record.
struct SandboxIdentity {
  SandboxId id;
  GenerationId generation;
  std::uint64_t auth_epoch = 0;
  std::string gateway_token_id;  ///< the `jti` that is valid now
  std::optional<RefreshReplay> replay;
  bool active = false;  ///< phase PROVISIONING, READY, STARTING, COMPLETED or ERROR
  std::string driver_name;
  std::string runtime_identity;  ///< empty: not recorded
};

class SandboxIdentities {
 public:
  virtual ~SandboxIdentities() = default;
  /// NOT_FOUND where no such sandbox is. Asked on EVERY call of a supervisor: answer from memory where possible; a stop, start, delete or
  /// rotation must show at once.
  virtual void find(const SandboxId& id, std::function<void(absl::StatusOr<SandboxIdentity>)> then) = 0;
  /// One durable compare-and-swap: where the record still has `expected_token_id`, sets `new_token_id` and `replay`. ABORTED otherwise.
  virtual void rotate(const SandboxId& id, const std::string& expected_token_id, const std::string& new_token_id,
                      const RefreshReplay& replay, std::function<void(absl::Status)> then) = 0;
};

}  // namespace openshell::api
