#include "providers/profile.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>

#include <algorithm>

#include "observability/text.hpp"
#include "policy/glob.hpp"
#include "policy/normalize.hpp"

namespace openshell::providers {
namespace {

using openshell::v1::ProviderProfileCredential;

constexpr std::string_view kBaseUrlSuffix = "_BASE_URL";
constexpr std::string_view kLayerPrefix = "_provider_";

bool mintable(openshell::v1::ProviderCredentialRefreshStrategy strategy) {
  using namespace openshell::v1;
  return strategy == PROVIDER_CREDENTIAL_REFRESH_STRATEGY_OAUTH2_REFRESH_TOKEN ||
         strategy == PROVIDER_CREDENTIAL_REFRESH_STRATEGY_OAUTH2_CLIENT_CREDENTIALS ||
         strategy == PROVIDER_CREDENTIAL_REFRESH_STRATEGY_GOOGLE_SERVICE_ACCOUNT_JWT ||
         strategy == PROVIDER_CREDENTIAL_REFRESH_STRATEGY_AWS_STS_ASSUME_ROLE;
}

std::vector<std::string> keys_of(const ProviderProfileCredential& credential) {
  if (credential.env_vars().empty()) return {credential.name()};
  return {credential.env_vars().begin(), credential.env_vars().end()};
}

/// The host of an absolute URL in lower case; nullopt where it is none.
std::optional<std::string> host_of(std::string_view url) {
  const auto scheme = url.find("://");
  if (scheme == std::string_view::npos || scheme == 0) return std::nullopt;
  auto rest = url.substr(scheme + 3);
  rest = rest.substr(0, rest.find_first_of("/?#"));
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) rest.remove_prefix(at + 1);
  const bool literal = !rest.empty() && rest.front() == '[';
  auto host = literal ? rest.substr(1, rest.find(']') == std::string_view::npos ? 0 : rest.find(']') - 1) : rest.substr(0, rest.find(':'));
  while (!host.empty() && host.back() == '.') host.remove_suffix(1);
  if (host.empty()) return std::nullopt;
  return absl::AsciiStrToLower(absl::string_view{host.data(), host.size()});
}

bool covers(const ProfileMessage& profile, const std::string& host) {
  return std::any_of(profile.endpoints().begin(), profile.endpoints().end(), [&](const auto& endpoint) {
    const auto pattern = absl::AsciiStrToLower(endpoint.host());
    if (pattern == host) return true;
    const auto glob = policy::Glob::compile(pattern, policy::GlobKind::host);
    return glob.ok() && glob->matches(host);
  });
}

}  // namespace

bool is_profile_id(std::string_view id) {
  if (id.empty() || id.front() == '-' || id.back() == '-' || id.find("--") != std::string_view::npos) return false;
  return std::all_of(id.begin(), id.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

bool resolved_at_runtime(const ProfileMessage& profile, const ProviderProfileCredential& credential) {
  if (credential.has_token_grant() || (credential.has_refresh() && mintable(credential.refresh().strategy()))) return true;
  return std::any_of(profile.credentials().begin(), profile.credentials().end(), [&](const auto& other) {
    if (!other.has_refresh() || !mintable(other.refresh().strategy())) return false;
    const auto& outputs = other.refresh().additional_outputs();
    return std::any_of(outputs.begin(), outputs.end(), [&](const auto& output) { return output.credential() == credential.name(); });
  });
}

std::set<std::string> accepted_keys(const ProfileMessage& profile) {
  std::set<std::string> out;
  for (const auto& credential : profile.credentials()) {
    for (auto& key : keys_of(credential)) out.insert(std::move(key));
  }
  return out;
}

std::set<std::string> broker_only_keys(const ProfileMessage& profile) {
  std::set<std::string> out;
  for (const auto& credential : profile.credentials()) {
    if (!credential.has_token_grant() || !credential.token_grant().has_subject_token()) continue;
    if (!credential.token_grant().subject_token().credential().empty()) out.insert(credential.token_grant().subject_token().credential());
  }
  return out;
}

std::set<std::string> hidden_keys(const ProfileMessage& profile) {
  auto out = broker_only_keys(profile);
  if (profile.id() == "google-vertex-ai") out.insert("GOOGLE_SERVICE_ACCOUNT_KEY");
  return out;
}

std::vector<std::string> missing_required(const ProfileMessage& profile, const std::set<std::string>& keys) {
  std::set<std::string> missing;
  for (const auto& credential : profile.credentials()) {
    if (!credential.required() || resolved_at_runtime(profile, credential)) continue;
    const auto accepted = keys_of(credential);
    if (std::none_of(accepted.begin(), accepted.end(), [&](const auto& key) { return keys.contains(key); }))
      missing.insert(accepted.front());
  }
  return {missing.begin(), missing.end()};
}

bool allows_empty(const ProfileMessage& profile) {
  return std::all_of(profile.credentials().begin(), profile.credentials().end(),
                     [&](const auto& credential) { return !credential.required() || resolved_at_runtime(profile, credential); });
}

bool is_credentialed(const ProfileMessage& profile) {
  return !profile.credentials().empty() || std::any_of(profile.endpoints().begin(), profile.endpoints().end(),
                                                       [](const auto& endpoint) { return !endpoint.credential_signing().empty(); });
}

bool endpoints_active(const Provider& provider) {
  const auto& profile = provider.profile->content;
  if (profile.endpoints().empty()) return true;
  return std::all_of(provider.config.begin(), provider.config.end(), [&](const auto& entry) {
    if (!absl::EndsWithIgnoreCase(entry.first, absl::string_view{kBaseUrlSuffix.data(), kBaseUrlSuffix.size()})) return true;
    const auto host = host_of(entry.second);
    return !host || covers(profile, *host);
  });
}

std::vector<BindingEndpoint> profile_endpoints(const Provider& provider) {
  std::vector<BindingEndpoint> out;
  if (provider.profile == nullptr || !endpoints_active(provider)) return out;
  for (const auto& endpoint : provider.profile->content.endpoints()) {
    std::vector<std::uint32_t> ports{endpoint.ports().begin(), endpoint.ports().end()};
    if (ports.empty()) ports.push_back(endpoint.port());
    for (const auto port : ports) {
      if (port != 0) out.push_back({endpoint.host(), port, endpoint.path()});
    }
  }
  return out;
}

std::string layer_name(std::string_view provider_name) {
  std::string slug;
  for (const char c : provider_name) {
    const bool kept = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
    slug += kept ? absl::ascii_tolower(static_cast<unsigned char>(c)) : '_';
  }
  const auto first = slug.find_first_not_of('_');
  slug = first == std::string::npos ? "unnamed" : slug.substr(first, slug.find_last_not_of('_') - first + 1);
  return cat(kLayerPrefix, slug);
}

std::optional<openshell::sandbox::v1::NetworkPolicyRule> layer(const Provider& provider) {
  if (provider.profile == nullptr || provider.profile->content.endpoints().empty() || !endpoints_active(provider)) return std::nullopt;
  const auto name = layer_name(provider.name);
  openshell::sandbox::v1::SandboxPolicy policy;
  auto& rule = (*policy.mutable_network_policies())[name];
  rule.set_name(name);
  *rule.mutable_endpoints() = provider.profile->content.endpoints();
  *rule.mutable_binaries() = provider.profile->content.binaries();
  policy::normalize(policy, policy::Provenance::clear);
  return std::move(policy.mutable_network_policies()->begin()->second);
}

absl::StatusOr<Profile> profile_from_row(const storage::Object& row) {
  Profile out;
  out.row_id = row.id;
  out.workspace = row.workspace;
  if (!out.content.ParseFromString(row.payload))
    return absl::DataLossError(cat("provider profile '", row.name.value_or(""), "' can not be read"));
  out.content.set_resource_version(row.resource_version);
  out.content.set_source("user");
  out.content.set_scope(row.workspace.empty() ? "platform" : "workspace");
  return out;
}

storage::Object to_row(const Profile& profile) {
  auto stored = profile.content;
  stored.clear_resource_version();
  stored.clear_source();
  stored.clear_scope();
  storage::Object row;
  row.type = storage::types::kProviderProfile;
  row.id = profile.row_id;
  row.workspace = profile.workspace;
  row.name = profile.content.id();
  row.payload = stored.SerializeAsString();
  row.resource_version = profile.content.resource_version();
  return row;
}

absl::StatusOr<std::shared_ptr<const Profile>> find_profile(storage::Transaction& tx, std::string_view scope, std::string_view id) {
  auto row = tx.get_by_name(storage::types::kProviderProfile, scope, id);
  if (!row.ok()) return row.status();
  if (!*row) return std::shared_ptr<const Profile>{};
  auto profile = profile_from_row(**row);
  if (!profile.ok()) return profile.status();
  return std::make_shared<const Profile>(*std::move(profile));
}

absl::StatusOr<std::shared_ptr<const Profile>> resolve_profile(storage::Transaction& tx, std::string_view profile_workspace,
                                                               std::string_view id) {
  if (!profile_workspace.empty()) {
    auto own = find_profile(tx, profile_workspace, id);
    if (!own.ok() || *own != nullptr) return own;
  }
  return find_profile(tx, "", id);
}

}  // namespace openshell::providers
