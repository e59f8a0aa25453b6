// Provider profiles: imported, updated, checked, listed, deleted. Without a workspace a call is about the platform's profiles.
#include <absl/strings/ascii.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <tuple>

#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/store_call.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "providers/profile.hpp"
#include "providers/profile_lint.hpp"
#include "storage/each_row.hpp"

namespace openshell::api {

using namespace openshell::v1;
using providers::Profile;
using storage::Transaction;

namespace {

constexpr int kMaxProfilesPerCall = 256;
constexpr std::size_t kMaxProfileBytes = 512U << 10;  // one stored profile

using Shared = std::shared_ptr<const ProviderHandlerOptions>;
using Diagnostics = google::protobuf::RepeatedPtrField<ProviderProfileDiagnostic>;

/// Where the profiles of a call lie: a workspace, or, empty, the platform.
template <class Request>
absl::StatusOr<std::string> scope_of(const Request& request) {
  if (!request.has_workspace_scope()) return std::string{};
  return single_workspace(request.workspace_scope());
}

absl::Status may(Transaction& tx, const CallContext& ctx, const std::string& scope, WorkspaceRole role, WorkspaceState state) {
  if (scope.empty()) return require_platform_admin(ctx);
  if (auto status = authorize_in(tx, ctx, scope, role); !status.ok()) return status;
  return require_workspace(tx, scope, state);
}

absl::StatusOr<std::string> normalized_id(const std::string& written) {
  auto id = absl::AsciiStrToLower(absl::StripAsciiWhitespace(written));
  if (id.empty()) return invalid_field("id", "id is required");
  if (!providers::is_profile_id(id)) return invalid_field("id", "id must be lowercase kebab-case using only a-z, 0-9, and '-'");
  return id;
}

ProviderProfile synthetic_generic() {
  ProviderProfile profile;
  profile.set_id(std::string{providers::kGenericType});
  profile.set_display_name("Generic");
  profile.set_category(PROVIDER_PROFILE_CATEGORY_OTHER);
  return profile;
}

/// Profiles of one scope.
absl::Status each_profile(Transaction& tx, const std::string& scope, const std::function<void(Profile)>& use) {
  storage::ListQuery query;
  query.type = storage::types::kProviderProfile;
  query.workspace = scope;
  auto status = storage::each_row(tx, std::move(query), [&](const storage::Object& row) {
    auto profile = providers::profile_from_row(row);
    if (profile.ok()) use(*std::move(profile));
    return profile.status();
  });
  return status.ok() ? status : from_storage("list provider profiles", status);
}

void get(const Shared& options, const Context& ctx, const GetProviderProfileRequest& request, const Reply<ProviderProfileResponse>& reply) {
  auto scope = scope_of(request);
  if (!scope.ok()) return reply.fail(scope.status());
  answer_in(Access::kRead, *options->store, reply,
            [ctx, scope = *scope, written = request.id()](Transaction& tx, ProviderProfileResponse& response) -> absl::Status {
              if (auto status = may(tx, *ctx, scope, WorkspaceRole::kUser, WorkspaceState::kAny); !status.ok()) return status;
              auto id = normalized_id(written);
              if (!id.ok()) return id.status();
              auto profile = providers::resolve_profile(tx, scope, *id);
              if (!profile.ok()) return from_storage("fetch provider profile", profile.status());
              if (*profile != nullptr) {
                *response.mutable_profile() = (*profile)->content;
              } else if (*id == providers::kGenericType) {
                *response.mutable_profile() = synthetic_generic();
              } else {
                return absl::NotFoundError("provider profile not found");
              }
              return absl::OkStatus();
            });
}

void list(const Shared& options, const Context& ctx, const ListProviderProfilesRequest& request,
          const Reply<ListProviderProfilesResponse>& reply) {
  auto scope = scope_of(request);
  if (!scope.ok()) return reply.fail(scope.status());
  auto size = page_size(request.page_size());
  if (!size.ok()) return reply.fail(size.status());
  const std::string binding = cat("ListProviderProfiles\n", *scope);
  auto cursor = options->store->parse_page_token(binding, request.page_token());
  if (!cursor.ok()) return reply.fail(invalid_field("page_token", to_std(cursor.status().message())));
  answer_in(Access::kRead, *options->store, reply,
            [=, scope = *scope, size = *size, after = *cursor](Transaction& tx, ListProviderProfilesResponse& response) -> absl::Status {
              if (auto status = may(tx, *ctx, scope, WorkspaceRole::kUser, WorkspaceState::kAny); !status.ok()) return status;
              std::vector<ProviderProfile> all;  // by id, then platform before workspace: the order of the pages
              const auto take = [&](Profile profile) { all.push_back(std::move(profile.content)); };
              if (auto status = each_profile(tx, "", take); !status.ok()) return status;
              if (!scope.empty()) {
                if (auto status = each_profile(tx, scope, take); !status.ok()) return status;
              }
              const auto key = [](const ProviderProfile& profile) { return std::pair{profile.id(), profile.scope()}; };
              std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
              for (const auto& profile : all) {
                if (after && key(profile) <= std::pair{after->name, after->workspace}) continue;
                if (static_cast<std::size_t>(response.profiles_size()) == size) {
                  const auto& last = response.profiles(response.profiles_size() - 1);
                  response.set_next_page_token(options->store->page_token(binding, {0, last.id(), last.scope(), last.id()}));
                  return absl::OkStatus();
                }
                *response.add_profiles() = profile;
              }
              return absl::OkStatus();
            });
}

void say(Diagnostics& out, const std::string& source, const std::string& id, std::string field, std::string message,
         const char* severity = "error") {
  auto& one = *out.Add();
  one.set_source(source);
  one.set_profile_id(id);
  one.set_field(std::move(field));
  one.set_message(std::move(message));
  one.set_severity(severity);
}

bool has_errors(const Diagnostics& all) {
  return std::any_of(all.begin(), all.end(), [](const auto& one) { return one.severity() == "error"; });
}

using Items = google::protobuf::RepeatedPtrField<ProviderProfileImportItem>;

/// Faults that can be seen without the store.
void check_items(const Items& items, Diagnostics& out) {
  if (items.empty()) return say(out, "", "", "profiles", "at least one provider profile is required");
  if (items.size() > kMaxProfilesPerCall)
    return say(out, "", "", "profiles", cat("at most ", kMaxProfilesPerCall, " provider profiles are taken at once, got ", items.size()));
  std::vector<providers::ProfileSource> sources;
  for (const auto& item : items) {
    if (!item.has_profile()) {
      say(out, item.source(), "", "profile", "provider profile is required");
      continue;
    }
    const auto& profile = item.profile();
    if (profile.ByteSizeLong() > kMaxProfileBytes)
      say(out, item.source(), profile.id(), "profile",
          cat("provider profile exceeds maximum size (", profile.ByteSizeLong(), " > ", kMaxProfileBytes, ")"));
    for (int i = 0; i < profile.endpoints_size(); ++i) {
      if (!profile.endpoints(i).has_credential_binding()) continue;
      say(out, item.source(), profile.id(), cat("endpoints[", i, "].credential_binding"),
          "credential_binding references a concrete sandbox provider and is only valid in sandbox policy");
    }
    sources.push_back({item.source(), &profile});
  }
  for (auto& fault : providers::lint(sources)) *out.Add() = std::move(fault);
}

/// Faults against what is stored: an id that is taken is an error, one that hides a platform profile a warning.
absl::Status check_conflicts(Transaction& tx, const std::string& scope, const Items& items, Diagnostics& out) {
  for (const auto& item : items) {
    const auto& id = item.profile().id();
    if (id.empty()) continue;
    auto same = providers::find_profile(tx, scope, id);
    if (!same.ok()) return from_storage("fetch provider profile", same.status());
    if (*same != nullptr) say(out, item.source(), id, "id", cat("custom provider profile '", id, "' already exists"));
    if (scope.empty()) continue;
    auto hidden = providers::find_profile(tx, "", id);
    if (!hidden.ok()) return from_storage("fetch provider profile", hidden.status());
    if (*hidden != nullptr)
      say(out, item.source(), id, "id", cat("profile '", id, "' shadows a platform-scoped profile in this workspace"), "warning");
  }
  return absl::OkStatus();
}

/// What sandboxes that have such a provider attached would make of the change.
absl::Status check_sandboxes(Transaction& tx, const ProviderHandlerOptions& options, const Profile& candidate, const std::string& source,
                             const char* operation, Diagnostics& out) {
  if (!options.profile_impact) return absl::OkStatus();
  auto faults = options.profile_impact(tx, candidate, operation);
  if (!faults.ok()) return from_storage("check attached sandboxes", faults.status());
  for (const auto& [field, message] : *faults) say(out, source, candidate.content.id(), field, message);
  return absl::OkStatus();
}

Profile candidate_of(const ProviderProfile& sent, const std::string& scope) {
  Profile out;
  out.row_id = storage::new_uuid();
  out.workspace = scope;
  out.content = sent;
  out.content.set_resource_version(0);
  return out;
}

absl::Status import_in(Transaction& tx, const ProviderHandlerOptions& options, const std::string& scope, const Items& items,
                       ImportProviderProfilesResponse& response) {
  auto& faults = *response.mutable_diagnostics();
  check_items(items, faults);
  if (auto status = check_conflicts(tx, scope, items, faults); !status.ok()) return status;
  std::vector<Profile> candidates;
  for (const auto& item : items) candidates.push_back(candidate_of(item.profile(), scope));
  for (int i = 0; !has_errors(faults) && i < items.size(); ++i) {
    if (auto status = check_sandboxes(tx, options, candidates[static_cast<std::size_t>(i)], items[i].source(), "import", faults);
        !status.ok())
      return status;
  }
  if (has_errors(faults)) return absl::OkStatus();
  for (const auto& candidate : candidates) {
    auto row = tx.create(providers::to_row(candidate));
    if (!row.ok()) return from_storage("import provider profile", row.status());
    auto stored = providers::profile_from_row(*row);
    if (!stored.ok()) return from_storage("import provider profile", stored.status());
    *response.add_profiles() = std::move(stored->content);
  }
  response.set_imported(true);
  return absl::OkStatus();
}

/// After a change of profiles every sandbox of the scope looks again.
void told(const Shared& options, const std::string& scope) {
  if (options->changed) options->changed(scope, "");
}

void import_profiles(const Shared& options, const Context& ctx, const ImportProviderProfilesRequest& request,
                     const Reply<ImportProviderProfilesResponse>& reply) {
  auto scope = scope_of(request);
  if (!scope.ok()) return reply.fail(scope.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  answer_in(
      Access::kWrite, *options->store, reply,
      [=, scope = *scope](Transaction& tx, ImportProviderProfilesResponse& response) -> absl::Status {
        if (auto status = may(tx, *ctx, scope, WorkspaceRole::kAdmin, WorkspaceState::kActive); !status.ok()) return status;
        return import_in(tx, *options, scope, request.profiles(), response);
      },
      [options, scope = *scope](const ImportProviderProfilesResponse& response) {
        if (response.imported()) told(options, scope);
      });
}

void lint(const Shared& options, const Context& ctx, const LintProviderProfilesRequest& request,
          const Reply<LintProviderProfilesResponse>& reply) {
  auto scope = scope_of(request);
  if (!scope.ok()) return reply.fail(scope.status());
  answer_in(Access::kRead, *options->store, reply,
            [=, scope = *scope](Transaction& tx, LintProviderProfilesResponse& response) -> absl::Status {
              if (auto status = may(tx, *ctx, scope, WorkspaceRole::kUser, WorkspaceState::kAny); !status.ok()) return status;
              check_items(request.profiles(), *response.mutable_diagnostics());
              if (auto status = check_conflicts(tx, scope, request.profiles(), *response.mutable_diagnostics()); !status.ok())
                return status;
              response.set_valid(!has_errors(response.diagnostics()));
              response.set_supports_stable_placeholder(true);
              return absl::OkStatus();
            });
}

absl::Status update_in(Transaction& tx, const ProviderHandlerOptions& options, const std::string& scope,
                       const UpdateProviderProfilesRequest& request, UpdateProviderProfilesResponse& response) {
  if (request.id().empty()) return invalid_field("id", "id is required");
  if (!providers::is_profile_id(request.id())) return invalid_field("id", "id must be lowercase kebab-case using only a-z, 0-9, and '-'");
  auto& faults = *response.mutable_diagnostics();
  Items items;
  if (request.has_profile()) *items.Add() = request.profile();
  check_items(items, faults);
  const auto& sent = request.profile().profile();
  const auto& source = request.profile().source();
  if (request.has_profile() && sent.id() != request.id())
    say(faults, source, sent.id(), "id",
        cat("provider profile update target '", request.id(), "' does not match payload id '", sent.id(), "'"));
  auto stored = providers::find_profile(tx, scope, request.id());
  if (!stored.ok()) return from_storage("fetch provider profile", stored.status());
  if (*stored == nullptr) say(faults, source, request.id(), "id", cat("custom provider profile '", request.id(), "' does not exist"));
  const auto expected = request.expected_resource_version() != 0 ? request.expected_resource_version() : sent.resource_version();
  if (expected == 0)
    say(faults, source, request.id(), "resource_version",
        "custom provider profile update requires a non-zero resource_version; export the current profile before editing it");
  if (has_errors(faults)) return absl::OkStatus();
  const auto current = (*stored)->content.resource_version();
  if (expected != current)
    return with_reason(absl::AbortedError(cat("provider profile was modified concurrently (current resource_version: ", current, ")")),
                       "RESOURCE_VERSION_CONFLICT");
  Profile candidate = **stored;
  candidate.content = sent;
  candidate.content.set_resource_version(current);
  if (auto status = check_sandboxes(tx, options, candidate, source, "update", faults); !status.ok()) return status;
  if (has_errors(faults)) return absl::OkStatus();
  auto row = tx.update(providers::to_row(candidate));
  if (!row.ok()) return from_storage("update provider profile", row.status());
  auto made = providers::profile_from_row(*row);
  if (!made.ok()) return from_storage("update provider profile", made.status());
  *response.mutable_profile() = std::move(made->content);
  response.set_updated(true);
  return absl::OkStatus();
}

void update(const Shared& options, const Context& ctx, const UpdateProviderProfilesRequest& request,
            const Reply<UpdateProviderProfilesResponse>& reply) {
  auto scope = scope_of(request);
  if (!scope.ok()) return reply.fail(scope.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  answer_in(
      Access::kWrite, *options->store, reply,
      [=, scope = *scope](Transaction& tx, UpdateProviderProfilesResponse& response) -> absl::Status {
        if (auto status = may(tx, *ctx, scope, WorkspaceRole::kAdmin, WorkspaceState::kActive); !status.ok()) return status;
        return update_in(tx, *options, scope, request, response);
      },
      [options, scope = *scope](const UpdateProviderProfilesResponse& response) {
        if (response.updated()) told(options, scope);
      });
}

/// Providers, attached or not, whose profile is exactly this entry. Sorted.
absl::StatusOr<std::vector<std::string>> users_of(Transaction& tx, const Profile& profile) {
  std::set<std::string> out;
  storage::ListQuery query;
  query.type = storage::types::kProvider;
  if (!profile.workspace.empty()) query.workspace = profile.workspace;
  auto status = storage::each_row(tx, std::move(query), [&](const storage::Object& row) {
    auto provider = providers::from_row(row);
    if (!provider.ok() || provider->type != profile.content.id()) return provider.status();
    if (auto found = providers::with_profile(tx, *provider); !found.ok()) return found;
    if (provider->profile != nullptr && provider->profile->row_id == profile.row_id)
      out.insert(profile.workspace.empty() ? cat(provider->workspace, "/", provider->name) : provider->name);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return std::vector<std::string>{out.begin(), out.end()};
}

absl::Status remove_in(Transaction& tx, const std::string& scope, const DeleteProviderProfileRequest& request,
                       DeleteProviderProfileResponse& response) {
  auto id = normalized_id(request.id());
  if (!id.ok()) return id.status();
  auto profile = providers::find_profile(tx, scope, *id);
  if (!profile.ok()) return from_storage("fetch provider profile", profile.status());
  if (*profile == nullptr) {
    response.set_outcome(DELETION_OUTCOME_ALREADY_ABSENT);
    return request.allow_missing() ? absl::OkStatus() : absl::NotFoundError("provider profile not found");
  }
  auto users = users_of(tx, **profile);
  if (!users.ok()) return from_storage("delete provider profile", users.status());
  if (!users->empty())
    return absl::FailedPreconditionError(cat("provider profile '", *id, "' is in use by providers: ", absl::StrJoin(*users, ", ")));
  response.set_outcome(DELETION_OUTCOME_COMPLETED);
  auto gone = tx.erase(storage::types::kProviderProfile, (*profile)->row_id);
  return gone.ok() ? absl::OkStatus() : from_storage("delete provider profile", gone.status());
}

void remove(const Shared& options, const Context& ctx, const DeleteProviderProfileRequest& request,
            const Reply<DeleteProviderProfileResponse>& reply) {
  auto scope = scope_of(request);
  if (!scope.ok()) return reply.fail(scope.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  answer_in(
      Access::kWrite, *options->store, reply,
      [=, scope = *scope](Transaction& tx, DeleteProviderProfileResponse& response) -> absl::Status {
        if (auto status = may(tx, *ctx, scope, WorkspaceRole::kAdmin, WorkspaceState::kAny); !status.ok()) return status;
        return remove_in(tx, scope, request, response);
      },
      [options, scope = *scope](const DeleteProviderProfileResponse& response) {
        if (response.outcome() == DELETION_OUTCOME_COMPLETED) told(options, scope);
      });
}

}  // namespace

void add_profile_handlers(Router& router, const ProviderHandlerOptions& given) {
  const auto options = std::make_shared<const ProviderHandlerOptions>(given);
  router.unary<GetProviderProfileRequest, ProviderProfileResponse>(
      "GetProviderProfile", [options](const Context& ctx, const GetProviderProfileRequest& request,
                                      const Reply<ProviderProfileResponse>& reply) { get(options, ctx, request, reply); });
  router.unary<ListProviderProfilesRequest, ListProviderProfilesResponse>(
      "ListProviderProfiles", [options](const Context& ctx, const ListProviderProfilesRequest& request,
                                        const Reply<ListProviderProfilesResponse>& reply) { list(options, ctx, request, reply); });
  router.unary<ImportProviderProfilesRequest, ImportProviderProfilesResponse>(
      "ImportProviderProfiles",
      [options](const Context& ctx, const ImportProviderProfilesRequest& request, const Reply<ImportProviderProfilesResponse>& reply) {
        import_profiles(options, ctx, request, reply);
      });
  router.unary<UpdateProviderProfilesRequest, UpdateProviderProfilesResponse>(
      "UpdateProviderProfiles", [options](const Context& ctx, const UpdateProviderProfilesRequest& request,
                                          const Reply<UpdateProviderProfilesResponse>& reply) { update(options, ctx, request, reply); });
  router.unary<LintProviderProfilesRequest, LintProviderProfilesResponse>(
      "LintProviderProfiles", [options](const Context& ctx, const LintProviderProfilesRequest& request,
                                        const Reply<LintProviderProfilesResponse>& reply) { lint(options, ctx, request, reply); });
  router.unary<DeleteProviderProfileRequest, DeleteProviderProfileResponse>(
      "DeleteProviderProfile", [options](const Context& ctx, const DeleteProviderProfileRequest& request,
                                         const Reply<DeleteProviderProfileResponse>& reply) { remove(options, ctx, request, reply); });
}

}  // namespace openshell::api
