#include "actors/gateway/policy_history.hpp"

namespace openshell::gateway {

const PolicyHistory::Revision* PolicyHistory::find(std::uint32_t version) const {
  if (version == 0) return newest();
  const auto it = rows_.find(version);
  return it == rows_.end() ? nullptr : &it->second;
}

void PolicyHistory::supersede_below(std::uint32_t version, std::vector<std::uint32_t>& changed) {
  for (auto it = rows_.begin(); it != rows_.lower_bound(version); ++it) {
    auto& revision = it->second.value;
    if (revision.status() != pb::POLICY_STATUS_PENDING && revision.status() != pb::POLICY_STATUS_LOADED) continue;  // FAILED stays FAILED
    revision.set_status(pb::POLICY_STATUS_SUPERSEDED);
    changed.push_back(it->first);
  }
}

std::vector<std::uint32_t> PolicyHistory::append(std::string row_id, const openshell::sandbox::v1::SandboxPolicy& policy, std::string hash,
                                                 const std::map<std::string, std::string>& provenance, Millis now, bool loaded) {
  const std::uint32_t version = rows_.empty() ? 1 : rows_.rbegin()->first + 1;
  std::vector<std::uint32_t> changed;
  supersede_below(version, changed);
  auto& row = rows_[version];
  row.row_id = std::move(row_id);
  row.value.set_version(version);
  *row.value.mutable_policy() = policy;
  row.value.set_hash(std::move(hash));
  row.value.set_status(loaded ? pb::POLICY_STATUS_LOADED : pb::POLICY_STATUS_PENDING);
  set_millis(row.value.mutable_created_time(), now);
  if (loaded) set_millis(row.value.mutable_loaded_time(), now);
  row.value.mutable_provenance()->insert(provenance.begin(), provenance.end());
  changed.push_back(version);
  return changed;
}

absl::StatusOr<PolicyHistory::Report> PolicyHistory::report(std::uint32_t version, bool loaded, const std::string& load_error,
                                                            std::uint32_t current, Millis now) {
  const auto it = rows_.find(version);
  if (it == rows_.end()) return absl::NotFoundError("policy revision not found");
  auto& revision = it->second.value;
  Report out;
  out.current = current;
  if (loaded) {
    if (revision.status() == pb::POLICY_STATUS_PENDING || revision.status() == pb::POLICY_STATUS_FAILED) {
      revision.set_status(pb::POLICY_STATUS_LOADED);
      revision.clear_load_error();
      set_millis(revision.mutable_loaded_time(), now);
      supersede_below(version, out.versions);
      out.versions.push_back(version);
    }
    out.current = std::max(current, version);
  } else if (revision.status() != pb::POLICY_STATUS_SUPERSEDED &&
             (revision.status() != pb::POLICY_STATUS_FAILED || revision.load_error() != load_error)) {
    revision.set_status(pb::POLICY_STATUS_FAILED);
    revision.set_load_error(load_error);
    out.versions.push_back(version);
  }
  out.changed = !out.versions.empty() || out.current != current;
  return out;
}

std::vector<std::uint32_t> PolicyHistory::retire_all() {
  std::vector<std::uint32_t> changed;
  for (auto& [version, row] : rows_) {
    if (row.value.status() == pb::POLICY_STATUS_SUPERSEDED) continue;
    row.value.set_status(pb::POLICY_STATUS_SUPERSEDED);
    changed.push_back(version);
  }
  return changed;
}

openshell::v1::SandboxPolicyRevision PolicyHistory::to_public(const records::PolicyRevisionRecord& revision, bool with_policy) {
  openshell::v1::SandboxPolicyRevision out;
  out.set_version(revision.version());
  out.set_policy_hash(revision.hash());
  out.set_status(revision.status());
  out.set_load_error(revision.load_error());
  if (revision.has_created_time()) *out.mutable_created_time() = revision.created_time();
  if (revision.has_loaded_time()) *out.mutable_loaded_time() = revision.loaded_time();
  *out.mutable_provenance() = revision.provenance();
  if (with_policy) *out.mutable_policy() = revision.policy();
  return out;
}

}  // namespace openshell::gateway
