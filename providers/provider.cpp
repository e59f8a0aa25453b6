#include "providers/provider.hpp"

#include <algorithm>
#include <set>

#include "observability/text.hpp"
#include "providers/placeholder.hpp"
#include "providers/profile.hpp"
#include "storage_provider.pb.h"

namespace openshell::providers {
namespace {

bool is_environment_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

bool is_credential_key(std::string_view name) { return is_environment_name(name) && !is_reserved_name(name); }

absl::Status check_limits(std::string_view field, const std::map<std::string, std::string>& entries, std::size_t max_entries) {
  if (entries.size() > max_entries)
    return absl::InvalidArgumentError(cat(field, " exceeds maximum entries (", entries.size(), " > ", max_entries, ")"));
  for (const auto& [key, value] : entries) {
    if (key.size() > kMaxMapKeyBytes)
      return absl::InvalidArgumentError(cat(field, " key exceeds maximum length (", key.size(), " > ", kMaxMapKeyBytes, ")"));
    if (value.size() > kMaxMapValueBytes)
      return absl::InvalidArgumentError(cat(field, " value exceeds maximum length (", value.size(), " > ", kMaxMapValueBytes, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Provider> from_row(const storage::Object& row) {
  openshell::storage::v1::StoredProvider stored;
  if (!stored.ParseFromString(row.payload)) return absl::DataLossError(cat("provider ", row.id, " can not be read"));
  Provider provider;
  provider.id = row.id;
  provider.workspace = row.workspace;
  provider.name = row.name.value_or("");
  provider.type = stored.type();
  provider.profile_workspace = stored.profile_workspace();
  provider.labels = row.labels;
  provider.annotations = {stored.annotations().begin(), stored.annotations().end()};
  provider.config = {stored.config().begin(), stored.config().end()};
  for (const auto& [key, credential] : stored.credentials()) {
    Credential& out = provider.credentials[key];
    out.handle = {credential.driver(), credential.handle(), {credential.metadata().begin(), credential.metadata().end()}};
    out.boundary_epoch = credential.boundary_epoch();
    if (credential.has_expires_at()) out.expires_at = credential.expires_at();
  }
  provider.created_at_ms = row.created_at_ms;
  provider.resource_version = row.resource_version;
  return provider;
}

storage::Object to_row(const Provider& provider) {
  openshell::storage::v1::StoredProvider stored;
  stored.set_type(provider.type);
  stored.set_profile_workspace(provider.profile_workspace);
  for (const auto& [key, value] : provider.annotations) (*stored.mutable_annotations())[key] = value;
  for (const auto& [key, value] : provider.config) (*stored.mutable_config())[key] = value;
  for (const auto& [key, credential] : provider.credentials) {
    auto& out = (*stored.mutable_credentials())[key];
    out.set_driver(credential.handle.driver);
    out.set_handle(credential.handle.handle);
    for (const auto& [name, value] : credential.handle.metadata) (*out.mutable_metadata())[name] = value;
    out.set_boundary_epoch(credential.boundary_epoch);
    if (credential.expires_at) out.set_expires_at(*credential.expires_at);
  }
  storage::Object row;
  row.type = storage::types::kProvider;
  row.id = provider.id;
  row.workspace = provider.workspace;
  row.name = provider.name;
  row.labels = provider.labels;
  row.payload = stored.SerializeAsString();
  row.resource_version = provider.resource_version;
  return row;
}

absl::StatusOr<std::optional<Provider>> find_provider(storage::Transaction& tx, std::string_view workspace, std::string_view name) {
  auto row = tx.get_by_name(storage::types::kProvider, workspace, name);
  if (!row.ok()) return row.status();
  if (!*row) return std::nullopt;
  auto provider = from_row(**row);
  if (!provider.ok()) return provider.status();
  return *std::move(provider);
}

absl::StatusOr<std::vector<Provider>> load_attached(storage::Transaction& tx, std::string_view workspace,
                                                    const std::vector<std::string>& names) {
  std::vector<Provider> providers;
  for (const auto& name : names) {
    auto provider = find_provider(tx, workspace, name);
    if (!provider.ok()) return provider.status();
    if (!*provider) return absl::FailedPreconditionError(cat("provider '", name, "' not found"));
    if (auto status = with_profile(tx, **provider); !status.ok()) return status;
    providers.push_back(**std::move(provider));
  }
  return providers;
}

absl::Status with_profile(storage::Transaction& tx, Provider& provider) {
  auto profile = resolve_profile(tx, provider.profile_workspace, provider.type);
  if (!profile.ok()) return profile.status();
  provider.profile = *std::move(profile);
  return absl::OkStatus();
}

absl::Status check_key_owners(const std::vector<Provider>& providers, std::int64_t now) {
  std::map<std::string, std::string> owner;
  for (const auto& provider : providers) {
    const auto hidden = provider.profile == nullptr ? std::set<std::string>{} : hidden_keys(provider.profile->content);
    for (const auto& [key, credential] : provider.credentials) {
      if (hidden.contains(key) || !is_credential_key(key) || (credential.expires_at && *credential.expires_at <= now)) continue;
      const auto [taken, fresh] = owner.emplace(key, provider.name);
      if (fresh) continue;
      return absl::FailedPreconditionError(cat("credential env key '", key, "' is provided by both provider '", taken->second,
                                               "' and provider '", provider.name, "'; use provider-specific env names"));
    }
  }
  return absl::OkStatus();
}

absl::Status check_attachment(storage::Transaction& tx, std::string_view workspace, const std::vector<std::string>& names,
                              std::int64_t now) {
  std::vector<std::string> unique;
  for (const auto& name : names) {
    if (name.empty()) return absl::InvalidArgumentError("provider is required");
    if (name.size() > kMaxNameBytes)
      return absl::InvalidArgumentError(cat("provider exceeds maximum length (", name.size(), " > ", kMaxNameBytes, ")"));
    if (std::find(unique.begin(), unique.end(), name) == unique.end()) unique.push_back(name);
  }
  if (unique.size() > kMaxProvidersPerSandbox)
    return absl::InvalidArgumentError(cat("providers list exceeds maximum (", unique.size(), " > ", kMaxProvidersPerSandbox, ")"));
  auto providers = load_attached(tx, workspace, unique);
  if (!providers.ok()) return providers.status();
  for (const auto& provider : *providers) {
    if (provider.profile != nullptr || provider.unbound()) continue;
    return absl::FailedPreconditionError(cat("provider '", provider.name, "' references provider profile '", provider.type,
                                             "', which is not in this gateway's profile catalog; import it with 'openshell provider "
                                             "profile import -f <file>",
                                             provider.profile_workspace.empty() ? " --global'" : "'"));
  }
  return check_key_owners(*providers, now);
}

}  // namespace openshell::providers
