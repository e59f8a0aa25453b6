#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "records.pb.h"

namespace openshell::gateway {

/// The identity part of every sandbox's record, for the authentication that runs on gRPC threads at every call of a supervisor. Written by
/// the entities after each commit, so that a stop, a start or a rotation shows at once. Thread-safe.
class IdentityTable {
 public:
  struct Entry {
    std::string sandbox_id, workspace, name, generation, gateway_token_id, driver, runtime_identity;
    std::string refresh_previous_token_id, refresh_request_hash, refresh_rotation_id;
    std::int64_t refresh_issued_at = 0, refresh_replay_until = 0;
    std::uint64_t auth_epoch = 0;
    bool active = false;  ///< a supervisor of it may call
  };

  void put(const internal::records::v1::SandboxRecord& record);
  void erase(const std::string& sandbox_id);
  [[nodiscard]] std::optional<Entry> find(const std::string& sandbox_id) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace openshell::gateway
