// GetProviderCredentials: the one call that hands secrets out. Only an operator gets here (api/authorization.hpp); each attempt is logged.
#include <google/protobuf/duration.pb.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "observability/log.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "providers/profile.hpp"
#include "providers/provider.hpp"

namespace openshell::api {

using namespace openshell::v1;

namespace {

constexpr int kMaxKeys = 32;
constexpr std::int64_t kDefaultRemainingSeconds = 300;
constexpr std::int64_t kMaxRemainingSeconds = 86'400;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool has_outer_blanks(const std::string& text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  return !text.empty() && (kBlank.find(text.front()) != std::string_view::npos || kBlank.find(text.back()) != std::string_view::npos);
}

/// No text of the request in a message: whoever sends a secret in the wrong field shall not find it in a log.
absl::Status check_selection(const GetProviderCredentialsRequest& request) {
  if (request.name().empty() || request.name().size() > providers::kMaxNameBytes || has_outer_blanks(request.name()))
    return invalid_field("name", cat("name must have 1 to ", providers::kMaxNameBytes, " bytes and no blanks around it"));
  const auto& keys = request.credential_keys();
  if (keys.empty() || keys.size() > kMaxKeys)
    return invalid_field("credential_keys", cat("credential_keys must name 1 to ", kMaxKeys, " keys"));
  std::set<std::string> unique;
  for (const auto& key : keys) {
    if (key.size() > providers::kMaxMapKeyBytes || !providers::is_credential_key(key))
      return invalid_field("credential_keys", "credential_keys must be names of environment variables");
    if (!unique.insert(key).second) return invalid_field("credential_keys", "credential_keys must not name a key twice");
  }
  const auto& lifetime = request.minimum_remaining_lifetime();
  const bool valid = lifetime.seconds() >= 0 && lifetime.nanos() >= 0 && lifetime.nanos() < 1'000'000'000 &&
                     (lifetime.seconds() < kMaxRemainingSeconds || (lifetime.seconds() == kMaxRemainingSeconds && lifetime.nanos() == 0));
  return valid ? absl::OkStatus()
               : invalid_field("minimum_remaining_lifetime", "minimum_remaining_lifetime must be between zero and 24 hours");
}

std::int64_t wanted_seconds(const google::protobuf::Duration& lifetime) {
  const std::int64_t seconds = lifetime.seconds() + (lifetime.nanos() > 0 ? 1 : 0);
  return seconds == 0 ? kDefaultRemainingSeconds : seconds;
}

/// All of them, or an error and none.
absl::Status collect(storage::Transaction& tx, const providers::CredentialStore& store, const providers::Provider& provider,
                     const GetProviderCredentialsRequest& request, GetProviderCredentialsResponse& out) {
  const std::int64_t earliest = unix_now() + wanted_seconds(request.minimum_remaining_lifetime());
  const auto hidden = provider.profile ? providers::hidden_keys(provider.profile->content) : std::set<std::string>{};
  for (const auto& key : request.credential_keys()) {
    const auto found = provider.credentials.find(key);
    if (found == provider.credentials.end() || hidden.contains(key))
      return absl::FailedPreconditionError("a requested key is not a runtime credential of this provider");
    const providers::Credential& credential = found->second;
    if (credential.expires_at && *credential.expires_at < earliest)
      return absl::FailedPreconditionError("a requested credential expires too soon, and the gateway can not renew it");
    auto value = store.resolve(tx, {provider.id, provider.name, key}, credential.handle);
    if (absl::IsNotFound(value.status())) return absl::NotFoundError("a requested credential is no longer stored");
    if (!value.ok()) return absl::InternalError("a requested credential can not be read");
    auto& wire = (*out.mutable_credentials())[key];
    wire.set_value(std::string{value->reveal()});
    if (credential.expires_at) wire.mutable_expiration_time()->set_seconds(*credential.expires_at);
  }
  return absl::OkStatus();
}

void wipe_values(GetProviderCredentialsResponse& response) {
  for (auto& [key, value] : *response.mutable_credentials()) wipe(*value.mutable_value());
}

void audit(const CallContext& ctx, const GetProviderCredentialsRequest& request, const std::string& outcome) {
  const auto* who = std::get_if<Operator>(&ctx.principal);
  const bool readable = outcome != "invalid_request";
  std::string keys;
  if (readable) {
    for (const auto& key : request.credential_keys()) keys += cat(keys.empty() ? "" : ",", key);
  }
  log::info("provider credentials requested by an operator",
            {{"subject", ctx.actor()},
             {"certificate", who == nullptr ? std::string{} : who->certificate_sha256},
             {"workspace", readable ? request.workspace_scope().workspace() : std::string{}},
             {"provider", readable ? request.name() : std::string{}},
             {"keys", keys},
             {"outcome", outcome}});
}

void export_credentials(const CredentialHandlerOptions& options, const Context& ctx, const GetProviderCredentialsRequest& request,
                        const Reply<GetProviderCredentialsResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  absl::Status wrong = workspace.ok() ? check_selection(request) : workspace.status();
  if (wrong.ok() && has_outer_blanks(*workspace)) wrong = invalid_field("workspace_scope", "workspace must have no blanks around it");
  if (!wrong.ok()) {
    audit(*ctx, request, "invalid_request");
    return reply.fail(wrong);
  }
  auto response = std::make_shared<GetProviderCredentialsResponse>();
  options.store->read(
      [request, response, store = options.credentials](storage::Transaction& tx) -> absl::Status {
        const std::string& ws = request.workspace_scope().workspace();
        if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
        auto provider = providers::find_provider(tx, ws, request.name());
        if (!provider.ok()) return from_storage("fetch provider", provider.status());
        if (!*provider) return absl::NotFoundError("provider not found");
        if (auto status = providers::with_profile(tx, **provider); !status.ok()) return from_storage("fetch provider profile", status);
        return collect(tx, *store, **provider, request, *response);
      },
      [ctx, request, response, reply](const absl::Status& status) {
        audit(*ctx, request, status.ok() ? "delivered" : absl::StatusCodeToString(status.code()));
        status.ok() ? reply.ok(*response) : reply.fail(status);
        wipe_values(*response);
      });
}

}  // namespace

void add_credential_handlers(Router& router, CredentialHandlerOptions options) {
  router.unary<GetProviderCredentialsRequest, GetProviderCredentialsResponse>(
      "GetProviderCredentials",
      [options](const Context& ctx, const GetProviderCredentialsRequest& request, const Reply<GetProviderCredentialsResponse>& reply) {
        export_credentials(options, ctx, request, reply);
      });
}

}  // namespace openshell::api
