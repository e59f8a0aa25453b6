#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "records.pb.h"

namespace openshell::gateway {

/// The stored form of every sandbox and the identity part of its record, for what runs on gRPC threads at every call: authentication of
/// supervisors, and GetSandbox. Written by the entities after each commit, before anybody hears of it, so that who was answered sees what
/// he did. Thread-safe.
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
  /// As it is stored now; null: no such sandbox.
  [[nodiscard]] std::shared_ptr<const openshell::v1::Sandbox> shown(const std::string& workspace, const std::string& name) const;
  [[nodiscard]] std::optional<Entry> find(const std::string& sandbox_id) const;

 private:
  mutable std::mutex mutex_;
  struct Held {
    Entry entry;
    std::shared_ptr<const openshell::v1::Sandbox> shown;
  };
  std::unordered_map<std::string, Held> entries_;
  std::map<std::pair<std::string, std::string>, std::string> ids_;  // by workspace and name
};

}  // namespace openshell::gateway
