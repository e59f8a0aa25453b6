#include <absl/strings/ascii.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "providers/environment.hpp"
#include "providers/placeholder.hpp"
#include "providers/provider.hpp"
#include "storage/labels.hpp"

namespace openshell::api {

using namespace openshell::v1;
using providers::Provider;
using storage::Transaction;
using WireProvider = openshell::datamodel::v1::Provider;

namespace {

constexpr std::string_view kRedacted = "REDACTED";

void set_time_ms(google::protobuf::Timestamp& out, std::int64_t ms) {
  out.set_seconds(ms / 1000);
  out.set_nanos(static_cast<std::int32_t>(ms % 1000) * 1'000'000);
}

/// As everybody may see it: which keys there are, never a value, never a handle.
WireProvider redacted(const Provider& provider) {
  WireProvider out;
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

ProviderProfile generic_profile() {
  ProviderProfile profile;
  profile.set_id(std::string{providers::kGenericType});
  profile.set_display_name("Generic");
  profile.set_category(PROVIDER_PROFILE_CATEGORY_OTHER);
  return profile;
}

std::string lower_trimmed(const std::string& text) { return absl::AsciiStrToLower(absl::StripAsciiWhitespace(text)); }

std::string generated_name() { return cat("provider-", storage::new_uuid().substr(0, 8)); }

absl::Status check_timestamp(std::string_view field, const google::protobuf::Timestamp& time) {
  constexpr std::int64_t kFirst = -62'135'596'800;
  constexpr std::int64_t kLast = 253'402'300'799;
  if (time.seconds() < kFirst || time.seconds() > kLast || time.nanos() < 0 || time.nanos() > 999'999'999) {
    return invalid_field(field, cat(field, " is not a valid timestamp"));
  }
  return absl::OkStatus();
}

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
  if (static_cast<std::size_t>(wire.credentials_size()) > providers::kMaxCredentials) {
    return invalid_field("provider.credentials", cat("provider.credentials exceeds maximum entries (", wire.credentials_size(), " > ",
                                                     providers::kMaxCredentials, ")"));
  }
  for (auto& [key, value] : *wire.mutable_credentials()) {
    Secret secret{value};
    wipe(value);
    if (key.size() > providers::kMaxMapKeyBytes) {
      return invalid_field("provider.credentials",
                           cat("provider.credentials key exceeds maximum length (", key.size(), " > ", providers::kMaxMapKeyBytes, ")"));
    }
    if (secret.reveal().size() > providers::kMaxMapValueBytes) {
      return invalid_field("provider.credentials", cat("provider.credentials value exceeds maximum length (", secret.reveal().size(), " > ",
                                                       providers::kMaxMapValueBytes, ")"));
    }
    if (!providers::is_credential_key(key)) {
      return invalid_field("provider.credentials",
                           providers::is_reserved_name(key)
                               ? cat("provider.credentials key '", key, "' is reserved: it reads as part of a placeholder")
                               : cat("provider.credentials keys must match ^[A-Za-z_][A-Za-z0-9_]*$; got '", key, "'"));
    }
    if (secret.empty()) continue;
    providers::Credential& credential = creation.provider.credentials[key];
    credential.boundary_epoch = storage::new_uuid();
    const auto expiry = wire.credential_expiration_times().find(key);
    if (expiry != wire.credential_expiration_times().end()) credential.expires_at = expiry->second.seconds();
    creation.secrets.emplace(key, std::move(secret));
  }
  if (creation.secrets.empty()) return invalid_field("provider.credentials", "provider.credentials must not be empty");
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Creation>> take(CreateProviderRequest& request, const std::string& workspace) {
  if (!request.has_provider()) return invalid_field("provider", "provider is required");
  if (auto status = check_shape(request, workspace); !status.ok()) return status;
  WireProvider& wire = *request.mutable_provider();
  auto creation = std::make_shared<Creation>();
  Provider& provider = creation->provider;
  provider.type = lower_trimmed(wire.type());
  if (provider.type != providers::kGenericType) {
    return invalid_field("provider.type",
                         cat("provider profile '", provider.type,
                             "' was not found in the requested scope; import a matching profile before creating this provider"));
  }
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

/// Reading profiles of the platform scope is for its admins, of a workspace for its users.
absl::Status may_read_profiles(Transaction& tx, const CallContext& ctx, const openshell::datamodel::v1::WorkspaceSelector* scope) {
  if (scope == nullptr) return require_platform_admin(ctx);
  auto workspace = single_workspace(*scope);
  if (!workspace.ok()) return workspace.status();
  if (auto status = authorize_in(tx, ctx, *workspace, WorkspaceRole::kUser); !status.ok()) return status;
  return require_workspace(tx, *workspace, WorkspaceState::kAny);
}

void get_profile(const ProviderHandlerOptions& options, const Context& ctx, const GetProviderProfileRequest& request,
                 const Reply<ProviderProfileResponse>& reply) {
  options.store->read(
      [ctx, request](Transaction& tx) -> absl::Status {
        if (auto status = may_read_profiles(tx, *ctx, request.has_workspace_scope() ? &request.workspace_scope() : nullptr); !status.ok())
          return status;
        if (request.id().empty()) return invalid_field("id", "id is required");
        if (request.id() != providers::kGenericType) return absl::NotFoundError(cat("provider profile '", request.id(), "' not found"));
        return absl::OkStatus();
      },
      [reply](const absl::Status& status) {
        if (!status.ok()) return reply.fail(status);
        ProviderProfileResponse response;
        *response.mutable_profile() = generic_profile();
        reply.ok(response);
      });
}

void list_profiles(const ProviderHandlerOptions& options, const Context& ctx, const ListProviderProfilesRequest& request,
                   const Reply<ListProviderProfilesResponse>& reply) {
  options.store->read(
      [ctx, request](Transaction& tx) -> absl::Status {
        if (auto size = page_size(request.page_size()); !size.ok()) return size.status();
        if (!request.page_token().empty())
          return invalid_field("page_token", "page_token is damaged, or belongs to a request with other parameters");
        return may_read_profiles(tx, *ctx, request.has_workspace_scope() ? &request.workspace_scope() : nullptr);
      },
      // No profile ships with a gateway, and none can be imported yet: the catalogue is empty, which is normal.
      [reply](const absl::Status& status) { status.ok() ? reply.ok(ListProviderProfilesResponse{}) : reply.fail(status); });
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
  router.unary<GetProviderProfileRequest, ProviderProfileResponse>(
      "GetProviderProfile", [options](const Context& ctx, const GetProviderProfileRequest& request,
                                      const Reply<ProviderProfileResponse>& reply) { get_profile(options, ctx, request, reply); });
  router.unary<ListProviderProfilesRequest, ListProviderProfilesResponse>(
      "ListProviderProfiles", [options](const Context& ctx, const ListProviderProfilesRequest& request,
                                        const Reply<ListProviderProfilesResponse>& reply) { list_profiles(options, ctx, request, reply); });
}

GetSandboxProviderEnvironmentResponse to_wire(const providers::Environment& environment) {
  GetSandboxProviderEnvironmentResponse out;
  for (const auto& [key, value] : environment.values) (*out.mutable_environment())[key] = std::string{value.reveal()};
  for (const auto& [key, seconds] : environment.expires_at) (*out.mutable_credential_expiration_times())[key].set_seconds(seconds);
  for (const auto& [key, binding] : environment.bindings) {
    auto& wire = (*out.mutable_static_credential_bindings())[key];
    for (const auto& endpoint : binding.endpoints) {
      auto& place = *wire.add_endpoints();
      place.set_host(endpoint.host);
      place.set_port(endpoint.port);
      place.set_path(endpoint.path);
    }
    wire.set_credential_identity(binding.credential_identity);
    wire.set_workload_credential_handle(binding.workload_credential_handle);
  }
  for (const auto& key : environment.non_secret_keys) out.add_non_secret_environment_keys(key);
  out.set_provider_env_revision(environment.revision);
  switch (environment.readiness) {
    case providers::Readiness::kUnspecified:
      break;
    case providers::Readiness::kCredentialsWithheld:
      out.set_readiness_reason(PROVIDER_READINESS_REASON_CREDENTIALS_WITHHELD);
      break;
    case providers::Readiness::kCredentialExpired:
      out.set_readiness_reason(PROVIDER_READINESS_REASON_CREDENTIAL_EXPIRED);
      break;
  }
  out.set_supports_stable_placeholder_environment_keys(true);
  return out;
}

}  // namespace openshell::api
