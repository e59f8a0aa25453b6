#include "actors/gateway/profile_impact.hpp"

#include "actors/gateway/effective_config.hpp"
#include "actors/gateway/records.hpp"
#include "observability/text.hpp"
#include "providers/profile.hpp"
#include "storage/each_row.hpp"

namespace openshell::gateway {
namespace {

using providers::Profile;
using providers::Provider;
using Faults = std::vector<std::pair<std::string, std::string>>;

/// Would this provider's credentials be described by `candidate`?
absl::StatusOr<bool> leads_to(storage::Transaction& tx, const Provider& provider, const Profile& candidate) {
  if (provider.type != candidate.content.id()) return false;
  if (!candidate.workspace.empty()) return provider.profile_workspace == candidate.workspace;
  if (provider.profile_workspace.empty()) return true;
  auto own = providers::find_profile(tx, provider.profile_workspace, provider.type);
  if (!own.ok()) return own.status();
  return *own == nullptr;
}

/// The attached providers with `candidate` in place; empty where none leads to it.
absl::StatusOr<std::vector<Provider>> affected(storage::Transaction& tx, const records::SandboxRecord& record,
                                               const std::shared_ptr<const Profile>& candidate) {
  const auto& sandbox = record.sandbox();
  std::vector<Provider> out;
  bool any = false;
  for (const auto& name : sandbox.spec().providers()) {
    auto provider = providers::find_provider(tx, sandbox.metadata().workspace(), name);
    if (!provider.ok()) return provider.status();
    if (!*provider) continue;
    if (auto status = providers::with_profile(tx, **provider); !status.ok()) return status;
    auto leads = leads_to(tx, **provider, *candidate);
    if (!leads.ok()) return leads.status();
    if (*leads) (*provider)->profile = candidate;
    any = any || *leads;
    out.push_back(**std::move(provider));
  }
  if (!any) out.clear();
  return out;
}

absl::StatusOr<openshell::sandbox::v1::SandboxPolicy> base_policy(storage::Transaction& tx, const records::SandboxRecord& record) {
  auto row = tx.latest_version(storage::types::kSandboxPolicy, record.sandbox().metadata().id());
  if (!row.ok()) return row.status();
  if (!*row) return record.sandbox().spec().policy();
  auto revision = revision_from_row(**row);
  if (!revision.ok()) return revision.status();
  return revision->value.policy();
}

absl::StatusOr<bool> global_policy(storage::Transaction& tx) {
  auto row = tx.get_by_name(storage::types::kGatewaySettings, "", "global");
  if (!row.ok()) return row.status();
  if (!*row) return false;
  auto settings = settings_from_row(**row);
  if (!settings.ok()) return settings.status();
  return settings->value.has_global_policy();
}

void judge(const records::SandboxRecord& record, const openshell::sandbox::v1::SandboxPolicy& base, const std::vector<Provider>& attached,
           const Profile& candidate, bool global, const std::string& operation, Faults& out) {
  const auto& name = record.sandbox().metadata().name();
  const auto bindings = policy_bindings(base);
  for (const auto& provider : attached) {
    if (provider.profile == nullptr || provider.profile->row_id != candidate.row_id) continue;
    const bool bound = bindings.contains(provider.name);
    const bool places = !providers::profile_endpoints(provider).empty();
    if (!places && !bound && !provider.credentials.empty())
      out.emplace_back("endpoints",
                       cat(operation, " would leave static provider credentials without an authorized endpoint on sandbox '", name, "'"));
    if (places && bound)
      out.emplace_back("endpoints", cat(operation, " would give provider '", provider.name,
                                        "' both profile endpoint bindings and sandbox policy credential bindings on sandbox '", name, "'"));
  }
  if (global) return;
  auto composed = check_composition(base, attached);
  if (composed.ok()) composed = check_uninspected(base, attached);
  if (!composed.ok())
    out.emplace_back("endpoints",
                     cat(operation, " would create ambiguous network endpoints on sandbox '", name, "': ", to_std(composed.message())));
}

}  // namespace

absl::Status check_attached(storage::Transaction& tx, const std::string& workspace, const std::vector<std::string>& sandboxes,
                            std::int64_t now) {
  for (const auto& name : sandboxes) {
    auto row = tx.get_by_name(storage::types::kSandbox, workspace, name);
    if (!row.ok()) return row.status();
    if (!*row) continue;
    auto record = sandbox_from_row(**row);
    if (!record.ok()) return record.status();
    const auto& names = record->sandbox().spec().providers();
    auto attached = providers::load_attached(tx, workspace, {names.begin(), names.end()});
    if (!attached.ok()) return attached.status();
    if (auto status = providers::check_key_owners(*attached, now); !status.ok())
      return absl::Status{status.code(), cat("sandbox '", name, "': ", to_std(status.message()))};
  }
  return absl::OkStatus();
}

absl::StatusOr<Faults> profile_impact(storage::Transaction& tx, const Profile& given, const std::string& operation) {
  const auto candidate = std::make_shared<const Profile>(given);
  auto global = global_policy(tx);
  if (!global.ok()) return global.status();
  Faults out;
  storage::ListQuery query;
  query.type = storage::types::kSandbox;
  if (!candidate->workspace.empty()) query.workspace = candidate->workspace;
  auto status = storage::each_row(tx, std::move(query), [&](const storage::Object& row) {
    auto record = sandbox_from_row(row);
    if (!record.ok()) return record.status();
    auto attached = affected(tx, *record, candidate);
    if (!attached.ok() || attached->empty()) return attached.status();
    auto base = base_policy(tx, *record);
    if (!base.ok()) return base.status();
    judge(*record, *base, *attached, *candidate, *global, operation, out);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return out;
}

}  // namespace openshell::gateway
