#include "actors/gateway/attachments.hpp"

#include <algorithm>

#include "actors/gateway/records.hpp"
#include "api/errors.hpp"
#include "observability/text.hpp"
#include "providers/profile.hpp"
#include "storage/each_row.hpp"

namespace openshell::gateway {

absl::StatusOr<std::vector<std::string>> sandboxes_with_provider(storage::Transaction& tx, const std::string& workspace,
                                                                 std::string_view provider) {
  std::vector<std::string> out;
  storage::ListQuery query;
  query.type = storage::types::kSandbox;
  query.workspace = workspace;
  auto status = storage::each_row(tx, std::move(query), [&](const storage::Object& row) {
    auto record = sandbox_from_row(row);
    if (!record.ok()) return record.status();
    const auto& names = record->sandbox().spec().providers();
    if (std::find(names.begin(), names.end(), provider) != names.end()) out.push_back(record->sandbox().metadata().name());
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

bool same_profile(const providers::Provider& a, const providers::Provider& b) {
  if (a.profile == nullptr || b.profile == nullptr) return a.profile == b.profile;
  return a.profile->row_id == b.profile->row_id && a.profile->content.resource_version() == b.profile->content.resource_version();
}

}  // namespace

absl::Status check_unchanged(storage::Transaction& tx, const std::vector<providers::Provider>& attached) {
  for (const auto& provider : attached) {
    auto stored = providers::find_provider(tx, provider.workspace, provider.name);
    if (!stored.ok()) return api::from_storage("attach sandbox provider", stored.status());
    if (!*stored || (*stored)->id != provider.id) return absl::FailedPreconditionError(cat("provider '", provider.name, "' not found"));
    if ((*stored)->resource_version != provider.resource_version)
      return api::version_conflict("attach sandbox provider", (*stored)->resource_version);
    if (auto status = providers::with_profile(tx, **stored); !status.ok()) return api::from_storage("attach sandbox provider", status);
    if (!same_profile(**stored, provider))
      return absl::AbortedError(cat("the profile of provider '", provider.name, "' was modified concurrently"));
  }
  return absl::OkStatus();
}

}  // namespace openshell::gateway
