#include <absl/strings/ascii.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/provider_view.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "providers/profile.hpp"
#include "providers/provider.hpp"
#include "storage/labels.hpp"

namespace openshell::api {

using namespace openshell::v1;
using providers::Provider;
using storage::Transaction;
using WireProvider = openshell::datamodel::v1::Provider;

namespace {

std::string lower_trimmed(const std::string& text) { return absl::AsciiStrToLower(absl::StripAsciiWhitespace(text)); }

std::string generated_name() { return cat("provider-", storage::new_uuid().substr(0, 8)); }

/// A request to create, checked and with its secrets taken out of the message.
struct Creation {
  Provider provider;
  std::map<std::string, Secret> secrets;
};

absl::Status as_field(std::string_view field, const absl::Status& status) {
  return status.ok() ? status : invalid_field(field, to_std(status.message()));
}

absl::Status check_shape(const CreateProviderRequest& request, std::string_view workspace) {
  const WireProvider& wire = request.provider();
  const std::map<std::string, std::string> config{wire.config().begin(), wire.config().end()};
  if (!wire.credential_handles().empty()) {
    return invalid_field("provider.credential_handles", "provider.credential_handles is internal gateway state and cannot be supplied");
  }
  if (absl::StripAsciiWhitespace(wire.type()).empty()) return invalid_field("provider.type", "provider.type is required");
  if (wire.type().size() > providers::kMaxTypeBytes) {
    return invalid_field("provider.type",
                         cat("provider.type exceeds maximum length (", wire.type().size(), " > ", providers::kMaxTypeBytes, ")"));
  }
  const std::string& name = wire.metadata().name();
  if (name.size() > providers::kMaxNameBytes) {
    return invalid_field("provider.name", cat("provider.name exceeds maximum length (", name.size(), " > ", providers::kMaxNameBytes, ")"));
  }
  if (!wire.profile_workspace().empty() && wire.profile_workspace() != workspace) {
    return invalid_field("provider.profile_workspace", "profile_workspace must be empty (global) or match the provider workspace");
  }
  if (auto status = as_field("provider.config", providers::check_limits("provider.config", config, providers::kMaxConfigEntries));
      !status.ok())
    return status;
  if (auto status =
          as_field("provider.metadata.labels", storage::check_labels({wire.metadata().labels().begin(), wire.metadata().labels().end()}));
      !status.ok())
    return status;
  if (auto status = as_field("provider.metadata.annotations",
                             storage::check_annotations({wire.metadata().annotations().begin(), wire.metadata().annotations().end()}));
      !status.ok()) {
    return status;
  }
  if (static_cast<std::size_t>(wire.credential_expiration_times_size()) > providers::kMaxCredentials) {
    return invalid_field("provider.credential_expiration_times",
                         cat("provider.credential_expiration_times exceeds maximum entries (", wire.credential_expiration_times_size(),
                             " > ", providers::kMaxCredentials, ")"));
  }
  for (const auto& [key, time] : wire.credential_expiration_times()) {
    if (auto status = check_timestamp("provider.credential_expiration_times", time); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status take_credentials(WireProvider& wire, Creation& creation) {
  const auto checked = check_credentials(wire.credentials());
  for (auto& [key, value] : *wire.mutable_credentials()) {
    Secret secret{value};
    wipe(value);
    if (!checked.ok() || secret.empty()) continue;
    providers::Credential& credential = creation.provider.credentials[key];
    credential.boundary_epoch = storage::new_uuid();
    const auto expiry = wire.credential_expiration_times().find(key);
    if (expiry != wire.credential_expiration_times().end()) credential.expires_at = expiry->second.seconds();
    creation.secrets.emplace(key, std::move(secret));
  }
  return checked;
}

absl::StatusOr<std::shared_ptr<Creation>> take(CreateProviderRequest& request, const std::string& workspace) {
  if (!request.has_provider()) return invalid_field("provider", "provider is required");
  if (auto status = check_shape(request, workspace); !status.ok()) return status;
  WireProvider& wire = *request.mutable_provider();
  auto creation = std::make_shared<Creation>();
  Provider& provider = creation->provider;
  provider.type = lower_trimmed(wire.type());
  provider.id = storage::new_uuid();
  provider.workspace = workspace;
  provider.name = wire.metadata().name().empty() ? generated_name() : wire.metadata().name();
  provider.profile_workspace = wire.profile_workspace();
  provider.labels = {wire.metadata().labels().begin(), wire.metadata().labels().end()};
  provider.annotations = {wire.metadata().annotations().begin(), wire.metadata().annotations().end()};
  std::erase_if(provider.annotations, [](const auto& entry) { return entry.first.starts_with("internal.openshell.ai/"); });
  provider.config = {wire.config().begin(), wire.config().end()};
  if (auto status = take_credentials(wire, *creation); !status.ok()) return status;
  return creation;
}

/// What the profile of its type makes of it.
absl::Status check_profile(Transaction& tx, Creation& creation) {
  Provider& provider = creation.provider;
  if (auto status = providers::with_profile(tx, provider); !status.ok()) return from_storage("fetch provider profile", status);
  if (provider.profile == nullptr && !provider.unbound()) {
    return invalid_field("provider.type",
                         cat("provider profile '", provider.type,
                             "' was not found in the requested scope; import a matching profile before creating this provider"));
  }
  std::set<std::string> keys;
  for (const auto& [key, secret] : creation.secrets) keys.insert(key);
  if (auto status = check_declared(provider, keys); !status.ok()) return status;
  const bool may_be_empty = provider.profile != nullptr && providers::allows_empty(provider.profile->content);
  if (keys.empty() && !may_be_empty) return invalid_field("provider.credentials", "provider.credentials must not be empty");
  return absl::OkStatus();
}

absl::Status insert(Transaction& tx, const providers::CredentialStore& credentials, Creation& creation) {
  Provider& provider = creation.provider;
  for (const auto& [key, secret] : creation.secrets) {
    auto handle = credentials.store(tx, {provider.id, provider.name, key}, secret);
    if (!handle.ok()) return from_storage("store credential", handle.status());
    provider.credentials[key].handle = *std::move(handle);
  }
  auto row = tx.create(providers::to_row(provider));
  if (absl::IsAlreadyExists(row.status())) return absl::AlreadyExistsError("provider already exists");
  if (!row.ok()) return from_storage("create provider", row.status());
  provider.created_at_ms = row->created_at_ms;
  provider.resource_version = row->resource_version;
  return absl::OkStatus();
}

void create(const ProviderHandlerOptions& options, const Context& ctx, CreateProviderRequest request,
            const Reply<ProviderResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  auto creation = take(request, *workspace);
  // Who may not create learns nothing from the checks of the body, so they are told after the transaction has authorised him.
  const absl::Status body = creation.status();
  auto made = creation.ok() ? *creation : nullptr;
  options.store->write(
      [ctx, ws = *workspace, body, made, credentials = options.credentials](Transaction& tx) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kAdmin); !status.ok()) return status;
        if (auto status = require_workspace(tx, ws, WorkspaceState::kActive); !status.ok()) return status;
        if (!body.ok()) return body;
        if (auto status = check_profile(tx, *made); !status.ok()) return status;
        return insert(tx, *credentials, *made);
      },
      [made, reply, changed = options.changed](const absl::Status& status) {
        if (!status.ok()) return reply.fail(status);
        if (changed) changed(made->provider.workspace, made->provider.name);
        ProviderResponse response;
        *response.mutable_provider() = redacted(made->provider);
        reply.ok(response);
      });
}

void get(const ProviderHandlerOptions& options, const Context& ctx, const GetProviderRequest& request,
         const Reply<ProviderResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  auto response = std::make_shared<ProviderResponse>();
  options.store->read(
      [ctx, ws = *workspace, name = request.name(), response](Transaction& tx) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kUser); !status.ok()) return status;
        if (name.empty()) return invalid_field("name", "name is required");
        if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
        auto provider = providers::find_provider(tx, ws, name);
        if (!provider.ok()) return from_storage("fetch provider", provider.status());
        if (!*provider) return absl::NotFoundError("provider not found");
        *response->mutable_provider() = redacted(**provider);
        return absl::OkStatus();
      },
      [response, reply](const absl::Status& status) { status.ok() ? reply.ok(*response) : reply.fail(status); });
}

void list(const ProviderHandlerOptions& options, const Context& ctx, const ListProvidersRequest& request,
          const Reply<ListProvidersResponse>& reply) {
  auto workspace = workspace_or_all(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  auto size = page_size(request.page_size());
  if (!size.ok()) return reply.fail(size.status());
  auto selector = storage::parse_label_selector(request.label_selector());
  if (!selector.ok()) return reply.fail(invalid_field("label_selector", to_std(selector.status().message())));
  const std::string binding = cat("ListProviders\n", *workspace ? **workspace : std::string{"*"}, "\n", request.label_selector());
  auto cursor = options.store->parse_page_token(binding, request.page_token());
  if (!cursor.ok()) return reply.fail(invalid_field("page_token", to_std(cursor.status().message())));
  storage::ListQuery query;
  query.type = storage::types::kProvider;
  query.workspace = *workspace;
  query.selector = *std::move(selector);
  query.after = *std::move(cursor);
  query.limit = *size;
  auto response = std::make_shared<ListProvidersResponse>();
  options.store->read(
      [ctx, query, binding, response, store = options.store](Transaction& tx) -> absl::Status {
        auto allowed = query.workspace ? authorize_in(tx, *ctx, *query.workspace, WorkspaceRole::kUser) : require_platform_admin(*ctx);
        if (!allowed.ok()) return allowed;
        if (query.workspace) {
          if (auto status = require_workspace(tx, *query.workspace, WorkspaceState::kAny); !status.ok()) return status;
        }
        auto page = tx.list(query);
        if (!page.ok()) return from_storage("list providers", page.status());
        for (const auto& row : page->objects) {
          auto provider = providers::from_row(row);
          if (!provider.ok()) return from_storage("list providers", provider.status());
          *response->add_providers() = redacted(*provider);
        }
        if (page->next) response->set_next_page_token(store->page_token(binding, *page->next));
        return absl::OkStatus();
      },
      [response, reply](const absl::Status& status) { status.ok() ? reply.ok(*response) : reply.fail(status); });
}

/// FAILED_PRECONDITION names the sandboxes.
absl::Status check_unattached(Transaction& tx, const ProviderHandlerOptions& options, const Provider& provider) {
  if (!options.attached_to) return absl::OkStatus();
  const auto sandboxes = options.attached_to(tx, provider.workspace, provider.name);
  if (!sandboxes.ok()) return from_storage("delete provider", sandboxes.status());
  if (sandboxes->empty()) return absl::OkStatus();
  std::string names;
  for (const auto& name : *sandboxes) names += cat(names.empty() ? "" : ", ", name);
  return absl::FailedPreconditionError(cat("provider '", provider.name, "' is attached to sandbox(es): ", names));
}

/// The record and its secrets.
absl::Status erase(Transaction& tx, const providers::CredentialStore& credentials, const Provider& provider) {
  for (const auto& [key, credential] : provider.credentials) {
    if (auto status = credentials.erase(tx, credential.handle); !status.ok()) return from_storage("delete credential", status);
  }
  auto erased = tx.erase(storage::types::kProvider, provider.id, provider.resource_version);
  return erased.ok() ? absl::OkStatus() : from_storage("delete provider", erased.status());
}

/// Everything in one transaction: an attachment that is committed before is seen, one that comes after finds no provider.
void remove(const ProviderHandlerOptions& options, const Context& ctx, const DeleteProviderRequest& request,
            const Reply<DeleteProviderResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  auto deleted = std::make_shared<bool>(false);
  options.store->write(
      [ctx, options, ws = *workspace, name = request.name(), missing_is_fine = request.allow_missing(),
       deleted](Transaction& tx) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kAdmin); !status.ok()) return status;
        if (name.empty()) return invalid_field("name", "name is required");
        if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
        auto provider = providers::find_provider(tx, ws, name);
        if (!provider.ok()) return from_storage("fetch provider", provider.status());
        if (!*provider) return missing_is_fine ? absl::OkStatus() : absl::NotFoundError("provider not found");
        if (auto status = check_unattached(tx, options, **provider); !status.ok()) return status;
        *deleted = true;
        return erase(tx, *options.credentials, **provider);
      },
      [reply, deleted, ws = *workspace, name = request.name(), changed = options.changed](const absl::Status& status) {
        if (!status.ok()) return reply.fail(status);
        if (*deleted && changed) changed(ws, name);
        DeleteProviderResponse response;
        response.set_outcome(*deleted ? DELETION_OUTCOME_COMPLETED : DELETION_OUTCOME_ALREADY_ABSENT);
        reply.ok(response);
      });
}

}  // namespace

void add_provider_handlers(Router& router, ProviderHandlerOptions options) {
  router.unary<CreateProviderRequest, ProviderResponse>(
      "CreateProvider", [options](const Context& ctx, CreateProviderRequest request, const Reply<ProviderResponse>& reply) {
        create(options, ctx, std::move(request), reply);
      });
  router.unary<GetProviderRequest, ProviderResponse>(
      "GetProvider", [options](const Context& ctx, const GetProviderRequest& request, const Reply<ProviderResponse>& reply) {
        get(options, ctx, request, reply);
      });
  router.unary<ListProvidersRequest, ListProvidersResponse>(
      "ListProviders", [options](const Context& ctx, const ListProvidersRequest& request, const Reply<ListProvidersResponse>& reply) {
        list(options, ctx, request, reply);
      });
  router.unary<DeleteProviderRequest, DeleteProviderResponse>(
      "DeleteProvider", [options](const Context& ctx, const DeleteProviderRequest& request, const Reply<DeleteProviderResponse>& reply) {
        remove(options, ctx, request, reply);
      });
  router.unary<UpdateProviderRequest, ProviderResponse>(
      "UpdateProvider", [options](const Context& ctx, UpdateProviderRequest request, const Reply<ProviderResponse>& reply) {
        update_provider(options, ctx, std::move(request), reply);
      });
  add_profile_handlers(router, options);
}

}  // namespace openshell::api
