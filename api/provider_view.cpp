#include "api/provider_view.hpp"

#include <absl/strings/str_join.h>

#include <vector>

#include "api/errors.hpp"
#include "api/names.hpp"
#include "observability/text.hpp"
#include "providers/placeholder.hpp"
#include "providers/profile.hpp"

namespace openshell::api {
namespace {

constexpr std::string_view kRedacted = "REDACTED";

}  // namespace

datamodel::v1::Provider redacted(const providers::Provider& provider) {
  datamodel::v1::Provider out;
  auto& metadata = *out.mutable_metadata();
  metadata.set_id(provider.id);
  metadata.set_name(provider.name);
  metadata.set_workspace(provider.workspace);
  metadata.set_resource_version(provider.resource_version);
  set_time_ms(*metadata.mutable_created_time(), provider.created_at_ms);
  for (const auto& [key, value] : provider.labels) (*metadata.mutable_labels())[key] = value;
  for (const auto& [key, value] : provider.annotations) (*metadata.mutable_annotations())[key] = value;
  out.set_type(provider.type);
  out.set_profile_workspace(provider.profile_workspace);
  for (const auto& [key, value] : provider.config) (*out.mutable_config())[key] = value;
  for (const auto& [key, credential] : provider.credentials) {
    (*out.mutable_credentials())[key] = kRedacted;
    if (credential.expires_at) (*out.mutable_credential_expiration_times())[key].set_seconds(*credential.expires_at);
  }
  return out;
}

absl::Status check_declared(const providers::Provider& provider, const std::set<std::string>& keys,
                            const std::set<std::string>& undeclared_is_fine) {
  if (provider.profile == nullptr) return absl::OkStatus();
  const auto& profile = provider.profile->content;
  const auto accepted = providers::accepted_keys(profile);
  std::vector<std::string> undeclared;
  for (const auto& key : keys) {
    if (!accepted.contains(key) && !undeclared_is_fine.contains(key)) undeclared.push_back(key);
  }
  if (!undeclared.empty())
    return invalid_field("provider.credentials",
                         cat("provider credentials are not declared by profile '", profile.id(), "': ", absl::StrJoin(undeclared, ", ")));
  const auto missing = providers::missing_required(profile, keys);
  if (!missing.empty())
    return invalid_field("provider.credentials",
                         cat("provider profile '", profile.id(), "' requires static credentials: ", absl::StrJoin(missing, ", ")));
  return absl::OkStatus();
}

absl::Status check_credentials(const google::protobuf::Map<std::string, std::string>& credentials) {
  const char* field = "provider.credentials";
  if (credentials.size() > providers::kMaxCredentials)
    return invalid_field(field, cat(field, " exceeds maximum entries (", credentials.size(), " > ", providers::kMaxCredentials, ")"));
  for (const auto& [key, value] : credentials) {
    if (key.size() > providers::kMaxMapKeyBytes)
      return invalid_field(field, cat(field, " key exceeds maximum length (", key.size(), " > ", providers::kMaxMapKeyBytes, ")"));
    if (value.size() > providers::kMaxMapValueBytes)
      return invalid_field(field, cat(field, " value exceeds maximum length (", value.size(), " > ", providers::kMaxMapValueBytes, ")"));
    if (providers::is_credential_key(key)) continue;
    return invalid_field(field, providers::is_reserved_name(key)
                                    ? cat(field, " key '", key, "' is reserved: it reads as part of a placeholder")
                                    : cat(field, " keys must match ^[A-Za-z_][A-Za-z0-9_]*$; got '", key, "'"));
  }
  return absl::OkStatus();
}

absl::Status check_timestamp(std::string_view field, const google::protobuf::Timestamp& time) {
  constexpr std::int64_t kFirst = -62'135'596'800;
  constexpr std::int64_t kLast = 253'402'300'799;
  if (time.seconds() < kFirst || time.seconds() > kLast || time.nanos() < 0 || time.nanos() > 999'999'999)
    return invalid_field(field, cat(field, " is not a valid timestamp"));
  return absl::OkStatus();
}

}  // namespace openshell::api
