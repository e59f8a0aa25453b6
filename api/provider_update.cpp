// UpdateProvider: what is sent is merged into what is stored, in one transaction. New values get objects of their own; the ones they
// replace go in the same commit, so that no version of a provider names a half-stored set and no secret is left behind.
#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/provider_view.hpp"
#include "api/workspace_scope.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "providers/profile.hpp"

#include <absl/strings/match.h>

#include <memory>

namespace openshell::api {

using namespace openshell::v1;
using providers::Provider;
using storage::Transaction;

namespace {

/// A request with its secrets taken out of the message.
struct Changes {
  UpdateProviderRequest request;
  std::map<std::string, Secret> values;          ///< to be stored
  std::set<std::string> removals;                ///< an empty value removes its key
  std::map<std::string, std::int64_t> expiries;  ///< Unix seconds
};

absl::Status check_shape(const UpdateProviderRequest& request) {
  const auto& wire = request.provider();
  if (!request.has_provider()) return invalid_field("provider", "provider is required");
  if (wire.metadata().name().empty()) return invalid_field("provider.name", "provider.name is required");
  if (!wire.credential_handles().empty())
    return invalid_field("provider.credential_handles", "provider.credential_handles is internal gateway state and cannot be supplied");
  if (auto status = check_credentials(wire.credentials()); !status.ok()) return status;
  const std::map<std::string, std::string> config{wire.config().begin(), wire.config().end()};
  if (auto status = providers::check_limits("provider.config", config, providers::kMaxConfigEntries); !status.ok())
    return invalid_field("provider.config", to_std(status.message()));
  return absl::OkStatus();
}

absl::Status take_expiries(Changes& changes) {
  const auto& request = changes.request;
  for (const auto* times : {&request.provider().credential_expiration_times(), &request.credential_expiration_times()}) {
    if (times->size() > providers::kMaxCredentials)
      return invalid_field("credential_expiration_times", cat("credential_expiration_times exceeds maximum entries (", times->size(), " > ",
                                                              providers::kMaxCredentials, ")"));
    for (const auto& [key, time] : *times) {
      if (auto status = check_timestamp("credential_expiration_times", time); !status.ok()) return status;
      changes.expiries[key] = time.seconds();
    }
  }
  for (const auto& key : request.clear_credential_expiration_keys()) {
    if (changes.expiries.contains(key))
      return invalid_field("clear_credential_expiration_keys", cat("credential expiration for '", key, "' cannot be both set and cleared"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Changes>> take(UpdateProviderRequest request) {
  if (auto status = check_shape(request); !status.ok()) return status;
  auto out = std::make_shared<Changes>();
  for (auto& [key, value] : *request.mutable_provider()->mutable_credentials()) {
    value.empty() ? void(out->removals.insert(key)) : void(out->values.emplace(key, Secret{value}));
    wipe(value);
  }
  request.mutable_provider()->clear_credentials();
  out->request = std::move(request);
  if (auto status = take_expiries(*out); !status.ok()) return status;
  return out;
}

absl::Status check_fixed(const Provider& stored, const datamodel::v1::Provider& wire) {
  if (!wire.type().empty() && !absl::EqualsIgnoreCase(wire.type(), stored.type))
    return invalid_field("provider.type", "provider type cannot be changed; delete and recreate the provider");
  if (!wire.profile_workspace().empty() && wire.profile_workspace() != stored.profile_workspace)
    return invalid_field("provider.profile_workspace", "profile_workspace cannot be changed; delete and recreate the provider");
  return absl::OkStatus();
}

absl::Status conflict(std::uint64_t current) {
  return with_reason(absl::AbortedError(cat("provider was modified concurrently (current resource_version: ", current, ")")),
                     "RESOURCE_VERSION_CONFLICT");
}

/// The keys that the provider has afterwards, judged by its profile.
absl::Status check_keys(const Provider& stored, const Changes& changes) {
  std::set<std::string> keys, untouched;
  for (const auto& [key, credential] : stored.credentials) {
    if (changes.removals.contains(key)) continue;
    keys.insert(key);
    if (!changes.values.contains(key)) untouched.insert(key);
  }
  for (const auto& [key, value] : changes.values) keys.insert(key);
  if (keys.size() > providers::kMaxCredentials)
    return invalid_field("provider.credentials",
                         cat("provider.credentials exceeds maximum entries (", keys.size(), " > ", providers::kMaxCredentials, ")"));
  if (auto status = check_declared(stored, keys, untouched); !status.ok()) return status;
  const bool needed = stored.profile == nullptr || !providers::allows_empty(stored.profile->content);
  if (keys.empty() && needed && !stored.credentials.empty())
    return invalid_field("provider.credentials", "provider.credentials must not be empty");
  return absl::OkStatus();
}

absl::Status merge_credentials(Transaction& tx, const providers::CredentialStore& store, Provider& provider, const Changes& changes) {
  for (const auto& key : changes.removals) {
    const auto found = provider.credentials.find(key);
    if (found == provider.credentials.end()) continue;
    if (auto status = store.erase(tx, found->second.handle); !status.ok()) return from_storage("delete credential", status);
    provider.credentials.erase(found);
  }
  for (const auto& [key, value] : changes.values) {
    auto handle = store.store(tx, {provider.id, provider.name, key}, value);
    if (!handle.ok()) return absl::Status{handle.status().code(), "credential storage failed before provider publication"};
    auto& credential = provider.credentials[key];
    if (!credential.handle.handle.empty()) {
      if (auto status = store.erase(tx, credential.handle); !status.ok()) return from_storage("delete credential", status);
    }
    credential.handle = *std::move(handle);
    if (credential.boundary_epoch.empty()) credential.boundary_epoch = storage::new_uuid();
  }
  return absl::OkStatus();
}

absl::Status merge(Transaction& tx, const providers::CredentialStore& store, Provider& provider, const Changes& changes) {
  const auto& wire = changes.request.provider();
  if (auto status = merge_credentials(tx, store, provider, changes); !status.ok()) return status;
  for (const auto& [key, value] : wire.config()) value.empty() ? void(provider.config.erase(key)) : void(provider.config[key] = value);
  if (provider.config.size() > providers::kMaxConfigEntries)
    return invalid_field("provider.config", cat("provider.config exceeds maximum entries (", provider.config.size(), " > ",
                                                providers::kMaxConfigEntries, ")"));
  for (const auto& [key, seconds] : changes.expiries) {
    const auto found = provider.credentials.find(key);
    if (found == provider.credentials.end())
      return invalid_field("credential_expiration_times", cat("provider has no credential '", key, "' whose expiration could be set"));
    found->second.expires_at = seconds;
  }
  for (const auto& key : changes.request.clear_credential_expiration_keys()) {
    if (const auto found = provider.credentials.find(key); found != provider.credentials.end()) found->second.expires_at.reset();
  }
  return absl::OkStatus();
}

/// What an update leads to, for the answer.
struct Updated {
  Provider provider;
  std::vector<std::string> sandboxes;  ///< that have it attached, as of the commit
};

absl::Status update_in(Transaction& tx, const ProviderHandlerOptions& options, const std::string& workspace, const Changes& changes,
                       Updated& out) {
  const auto& wire = changes.request.provider();
  auto found = providers::find_provider(tx, workspace, wire.metadata().name());
  if (!found.ok()) return from_storage("fetch provider", found.status());
  if (!*found) return absl::NotFoundError("provider not found");
  auto& provider = **found;
  if (auto status = check_fixed(provider, wire); !status.ok()) return status;
  if (wire.metadata().resource_version() != 0 && wire.metadata().resource_version() != provider.resource_version)
    return conflict(provider.resource_version);
  if (auto status = providers::with_profile(tx, provider); !status.ok()) return from_storage("fetch provider profile", status);
  if (auto status = check_keys(provider, changes); !status.ok()) return status;
  if (auto status = merge(tx, *options.credentials, provider, changes); !status.ok()) return status;
  auto row = tx.update(providers::to_row(provider));
  if (absl::IsAborted(row.status())) return conflict(storage::conflict_version(row.status()).value_or(0));
  if (!row.ok()) return from_storage("update provider", row.status());
  provider.resource_version = row->resource_version;
  if (options.attached_to) {
    auto sandboxes = options.attached_to(tx, workspace, provider.name);
    if (!sandboxes.ok()) return from_storage("update provider", sandboxes.status());
    out.sandboxes = *std::move(sandboxes);
  }
  // In the transaction that writes: a key that another provider of an attached sandbox gives already is refused.
  if (options.check_attached && !out.sandboxes.empty()) {
    if (auto status = options.check_attached(tx, workspace, out.sandboxes); !status.ok())
      return absl::Status{status.code(), cat("provider update would create credential env key conflict on ", to_std(status.message()))};
  }
  out.provider = std::move(provider);
  return absl::OkStatus();
}

void answer(const ProviderHandlerOptions& options, const Updated& updated, const Reply<ProviderResponse>& reply) {
  auto response = std::make_shared<ProviderResponse>();
  *response->mutable_provider() = redacted(updated.provider);
  response->set_mutation_id(storage::new_uuid());
  if (options.changed) options.changed(updated.provider.workspace, updated.provider.name);
  if (updated.sandboxes.empty() || !options.receipts) return reply.ok(*response);
  options.receipts(updated.provider.workspace, updated.sandboxes, updated.provider.name, response->mutation_id(),
                   [response, reply](std::vector<ProviderMutationReceipt> receipts) {
                     for (auto& receipt : receipts) *response->add_target_receipts() = std::move(receipt);
                     reply.ok(*response);
                   });
}

}  // namespace

void update_provider(const ProviderHandlerOptions& options, const Context& ctx, UpdateProviderRequest request,
                     const Reply<ProviderResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  auto taken = take(std::move(request));
  auto updated = std::make_shared<Updated>();
  options.store->write(
      [ctx, options, ws = *workspace, body = taken.status(), changes = taken.ok() ? *taken : nullptr,
       updated](Transaction& tx) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kAdmin); !status.ok()) return status;
        if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
        if (!body.ok()) return body;
        return update_in(tx, options, ws, *changes, *updated);
      },
      [options, updated, reply](const absl::Status& status) { status.ok() ? answer(options, *updated, reply) : reply.fail(status); });
}

}  // namespace openshell::api
