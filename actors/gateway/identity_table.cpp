#include "actors/gateway/identity_table.hpp"

namespace openshell::gateway {

void IdentityTable::put(const internal::records::v1::SandboxRecord& record) {
  const auto& meta = record.sandbox().metadata();
  Entry entry;
  entry.sandbox_id = meta.id();
  entry.workspace = meta.workspace();
  entry.name = meta.name();
  entry.generation = record.runtime_generation();
  entry.gateway_token_id = record.gateway_token_id();
  entry.driver = record.driver();
  entry.runtime_identity = record.runtime_identity();
  entry.auth_epoch = record.auth_epoch();
  entry.refresh_previous_token_id = record.refresh_previous_token_id();
  entry.refresh_request_hash = record.refresh_request_hash();
  entry.refresh_rotation_id = record.refresh_rotation_id();
  entry.refresh_issued_at = record.refresh_issued_at();
  entry.refresh_replay_until = record.refresh_replay_until();
  switch (record.sandbox().status().phase()) {
    case v1::SANDBOX_PHASE_STOPPING:
    case v1::SANDBOX_PHASE_STOPPED:
    case v1::SANDBOX_PHASE_DELETING:
      break;
    default:
      entry.active = true;
  }
  Held held{std::move(entry), std::make_shared<const openshell::v1::Sandbox>(record.sandbox())};
  const std::lock_guard lock{mutex_};
  ids_[{meta.workspace(), meta.name()}] = meta.id();
  std::swap(entries_[meta.id()], held);
}

void IdentityTable::erase(const std::string& sandbox_id) {
  const std::lock_guard lock{mutex_};
  const auto it = entries_.find(sandbox_id);
  if (it == entries_.end()) return;
  const auto named = ids_.find({it->second.entry.workspace, it->second.entry.name});
  if (named != ids_.end() && named->second == sandbox_id) ids_.erase(named);
  entries_.erase(it);
}

std::shared_ptr<const openshell::v1::Sandbox> IdentityTable::shown(const std::string& workspace, const std::string& name) const {
  const std::lock_guard lock{mutex_};
  const auto named = ids_.find({workspace, name});
  if (named == ids_.end()) return nullptr;
  const auto it = entries_.find(named->second);
  return it == entries_.end() ? nullptr : it->second.shown;
}

std::optional<IdentityTable::Entry> IdentityTable::find(const std::string& sandbox_id) const {
  const std::lock_guard lock{mutex_};
  const auto it = entries_.find(sandbox_id);
  if (it == entries_.end()) return std::nullopt;
  return it->second.entry;
}

}  // namespace openshell::gateway
