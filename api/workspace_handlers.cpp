// Workspaces: made and deleted by platform admins, seen by their members.
#include <algorithm>
#include <array>
#include <chrono>

#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/names.hpp"
#include "api/store_call.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "storage/labels.hpp"
#include "storage/types.hpp"

namespace openshell::api {

using namespace openshell::v1;
using datamodel::v1::Workspace;
using storage::Transaction;

namespace {

/// What keeps a workspace from being deleted, in the order in which it is named.
struct Blocking {
  std::string_view type;
  std::string_view label;
};
constexpr std::array kBlocking{
    Blocking{storage::types::kSandbox, "sandbox"},
    Blocking{storage::types::kSandboxTemplate, "sandbox template"},
    Blocking{storage::types::kProvider, "provider"},
    Blocking{storage::types::kProviderProfile, "provider profile"},
    Blocking{storage::types::kServiceEndpoint, "service"},
    Blocking{storage::types::kSshSession, "ssh session"},
    Blocking{storage::types::kSandboxSettings, "sandbox settings"},
    Blocking{storage::types::kSandboxPolicy, "sandbox policy"},
    Blocking{storage::types::kDraftPolicyChunk, "draft policy chunk"},
    Blocking{storage::types::kProviderRefresh, "credential refresh state"},
};

absl::StatusOr<Workspace> from_row(const storage::Object& row) {
  Workspace out;
  if (!out.ParseFromString(row.payload)) return absl::InternalError(cat("workspace '", row.name.value_or(""), "' can not be read"));
  auto& metadata = *out.mutable_metadata();
  metadata.set_resource_version(row.resource_version);
  set_time_ms(*metadata.mutable_created_time(), row.created_at_ms);
  *metadata.mutable_labels() = {row.labels.begin(), row.labels.end()};
  return out;
}

/// nullopt: no such workspace.
absl::StatusOr<std::optional<storage::Object>> find(Transaction& tx, std::string_view name) {
  auto row = tx.get_by_name(storage::types::kWorkspace, "", name);
  if (!row.ok()) return from_storage("fetch workspace", row.status());
  return row;
}

void create(storage::Store& store, const CreateWorkspaceRequest& request, const Reply<CreateWorkspaceResponse>& reply) {
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  if (request.name().empty()) return reply.fail(invalid_field("name", "workspace name is required"));
  if (auto status = check_dns_name("name", "workspace name", request.name()); !status.ok()) return reply.fail(status);
  const storage::Labels labels{request.labels().begin(), request.labels().end()};
  if (auto status = storage::check_labels(labels); !status.ok()) return reply.fail(invalid_field("labels", to_std(status.message())));
  answer_in(Access::kWrite, store, reply,
            [name = request.name(), labels](Transaction& tx, CreateWorkspaceResponse& response) -> absl::Status {
              Workspace workspace;
              workspace.mutable_metadata()->set_id(storage::new_uuid());
              workspace.mutable_metadata()->set_name(name);
              workspace.mutable_status()->set_phase(datamodel::v1::WORKSPACE_PHASE_ACTIVE);
              storage::Object object;
              object.type = storage::types::kWorkspace;
              object.id = workspace.metadata().id();
              object.name = name;
              object.labels = labels;
              object.payload = workspace.SerializeAsString();
              auto row = tx.create(std::move(object));
              if (absl::IsAlreadyExists(row.status())) return absl::AlreadyExistsError("workspace already exists");
              if (!row.ok()) return from_storage("create workspace", row.status());
              auto made = from_row(*row);
              if (!made.ok()) return made.status();
              *response.mutable_workspace() = *std::move(made);
              return absl::OkStatus();
            });
}

void get(storage::Store& store, const Context& ctx, const GetWorkspaceRequest& request, const Reply<GetWorkspaceResponse>& reply) {
  if (request.name().empty()) return reply.fail(invalid_field("name", "name is required"));
  answer_in(Access::kRead, store, reply, [ctx, name = request.name()](Transaction& tx, GetWorkspaceResponse& response) -> absl::Status {
    if (auto status = authorize_in(tx, *ctx, name, WorkspaceRole::kUser); !status.ok()) return status;
    auto row = find(tx, name);
    if (!row.ok()) return row.status();
    if (!*row) return absl::NotFoundError("workspace not found");
    auto workspace = from_row(**row);
    if (!workspace.ok()) return workspace.status();
    *response.mutable_workspace() = *std::move(workspace);
    return absl::OkStatus();
  });
}

/// Platform admins see all workspaces, others those that they are a member of.
absl::StatusOr<bool> visible(Transaction& tx, const CallContext& ctx, const storage::Object& row) {
  if (ctx.platform_admin()) return true;
  const Identity* who = ctx.identity();
  if (who == nullptr) return false;
  auto member = tx.get_by_name(storage::types::kWorkspaceMember, row.name.value_or(""), who->subject);
  if (!member.ok()) return from_storage("list workspaces", member.status());
  return member->has_value();
}

/// Rows of the store are skipped until the page is full of what the caller may see.
absl::Status fill_page(Transaction& tx, const CallContext& ctx, storage::ListQuery query, std::size_t size, const storage::Store& store,
                       const std::string& binding, ListWorkspacesResponse& response) {
  query.limit = storage::kMaxPageSize;
  std::optional<storage::Cursor> last;
  while (true) {
    auto page = tx.list(query);
    if (!page.ok()) return from_storage("list workspaces", page.status());
    for (const auto& row : page->objects) {
      auto shown = visible(tx, ctx, row);
      if (!shown.ok()) return shown.status();
      if (!*shown) continue;
      if (static_cast<std::size_t>(response.workspaces_size()) == size) {
        response.set_next_page_token(store.page_token(binding, *last));
        return absl::OkStatus();
      }
      auto workspace = from_row(row);
      if (!workspace.ok()) return workspace.status();
      *response.add_workspaces() = *std::move(workspace);
      last = storage::Cursor{row.created_at_ms, row.name.value_or(""), row.workspace, row.id};
    }
    if (!page->next) return absl::OkStatus();
    query.after = page->next;
  }
}

void list(storage::Store& store, const Context& ctx, const ListWorkspacesRequest& request, const Reply<ListWorkspacesResponse>& reply) {
  auto size = page_size(request.page_size());
  if (!size.ok()) return reply.fail(size.status());
  auto selector = storage::parse_label_selector(request.label_selector());
  if (!selector.ok()) return reply.fail(invalid_field("label_selector", to_std(selector.status().message())));
  const std::string binding = cat("ListWorkspaces\n", request.label_selector());
  auto cursor = store.parse_page_token(binding, request.page_token());
  if (!cursor.ok()) return reply.fail(invalid_field("page_token", to_std(cursor.status().message())));
  storage::ListQuery query;
  query.type = storage::types::kWorkspace;
  query.selector = *std::move(selector);
  query.after = *std::move(cursor);
  answer_in(Access::kRead, store, reply, [ctx, query, size = *size, binding, &store](Transaction& tx, ListWorkspacesResponse& response) {
    return fill_page(tx, *ctx, query, size, store, binding, response);
  });
}

absl::StatusOr<std::string> what_is_left(Transaction& tx, const std::string& workspace) {
  std::string labels;
  for (const auto& one : kBlocking) {
    auto there = tx.count(one.type, workspace);
    if (!there.ok()) return from_storage("delete workspace", there.status());
    if (*there > 0) labels += cat(labels.empty() ? "" : ", ", one.label);
  }
  return labels;
}

/// Answers the row as it is stored then.
absl::StatusOr<storage::Object> make_terminating(Transaction& tx, storage::Object row) {
  auto workspace = from_row(row);
  if (!workspace.ok()) return workspace.status();
  if (workspace->metadata().has_deletion_time()) return row;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  set_time_ms(*workspace->mutable_metadata()->mutable_deletion_time(), std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  workspace->mutable_status()->set_phase(datamodel::v1::WORKSPACE_PHASE_TERMINATING);
  row.payload = workspace->SerializeAsString();
  auto stored = tx.update(std::move(row));
  if (absl::IsAborted(stored.status())) return absl::AbortedError("workspace was concurrently modified, please retry");
  if (!stored.ok()) return from_storage("delete workspace", stored.status());
  return stored;
}

absl::Status erase(Transaction& tx, const storage::Object& row) {
  storage::ListQuery members;
  members.type = storage::types::kWorkspaceMember;
  members.workspace = row.name;
  members.limit = storage::kMaxPageSize;
  auto page = tx.list(members);
  if (!page.ok()) return from_storage("delete workspace", page.status());
  for (const auto& member : page->objects) {
    if (auto gone = tx.erase(member.type, member.id); !gone.ok()) return from_storage("delete workspace", gone.status());
  }
  auto gone = tx.erase(row.type, row.id, row.resource_version);
  if (absl::IsAborted(gone.status())) return absl::AbortedError("workspace was concurrently modified, please retry");
  return gone.ok() ? absl::OkStatus() : from_storage("delete workspace", gone.status());
}

/// A workspace that still holds something stays terminating: the transaction commits, and `refusal` is what the caller hears.
absl::Status remove_in(Transaction& tx, const DeleteWorkspaceRequest& request, DeleteWorkspaceResponse& response, absl::Status& refusal) {
  auto row = find(tx, request.name());
  if (!row.ok()) return row.status();
  if (!*row) {
    response.set_outcome(DELETION_OUTCOME_ALREADY_ABSENT);
    return request.allow_missing() ? absl::OkStatus() : absl::NotFoundError("workspace not found");
  }
  auto terminating = make_terminating(tx, **std::move(row));
  if (!terminating.ok()) return terminating.status();
  auto left = what_is_left(tx, request.name());
  if (!left.ok()) return left.status();
  if (!left->empty()) {
    refusal = absl::FailedPreconditionError(cat("workspace '", request.name(), "' still contains resources: ", *left));
    return absl::OkStatus();
  }
  response.set_outcome(DELETION_OUTCOME_COMPLETED);
  return erase(tx, *terminating);
}

void remove(storage::Store& store, const DeleteWorkspaceRequest& request, const Reply<DeleteWorkspaceResponse>& reply) {
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  if (request.name().empty()) return reply.fail(invalid_field("name", "name is required"));
  if (request.name() == "default") return reply.fail(absl::FailedPreconditionError("the default workspace cannot be deleted"));
  auto response = std::make_shared<DeleteWorkspaceResponse>();
  auto refusal = std::make_shared<absl::Status>();
  store.write([request, response, refusal](Transaction& tx) { return remove_in(tx, request, *response, *refusal); },
              [response, refusal, reply](const absl::Status& status) {
                if (!status.ok()) return reply.fail(status);
                refusal->ok() ? reply.ok(*response) : reply.fail(*refusal);
              });
}

}  // namespace

void add_workspace_handlers(Router& router, storage::Store* store) {
  router.unary<CreateWorkspaceRequest, CreateWorkspaceResponse>(
      "CreateWorkspace", [store](const Context& ctx, const CreateWorkspaceRequest& request, const Reply<CreateWorkspaceResponse>& reply) {
        if (auto status = require_platform_admin(*ctx); !status.ok()) return reply.fail(status);
        create(*store, request, reply);
      });
  router.unary<GetWorkspaceRequest, GetWorkspaceResponse>(
      "GetWorkspace", [store](const Context& ctx, const GetWorkspaceRequest& request, const Reply<GetWorkspaceResponse>& reply) {
        get(*store, ctx, request, reply);
      });
  router.unary<ListWorkspacesRequest, ListWorkspacesResponse>(
      "ListWorkspaces", [store](const Context& ctx, const ListWorkspacesRequest& request, const Reply<ListWorkspacesResponse>& reply) {
        list(*store, ctx, request, reply);
      });
  router.unary<DeleteWorkspaceRequest, DeleteWorkspaceResponse>(
      "DeleteWorkspace", [store](const Context& ctx, const DeleteWorkspaceRequest& request, const Reply<DeleteWorkspaceResponse>& reply) {
        if (auto status = require_platform_admin(*ctx); !status.ok()) return reply.fail(status);
        remove(*store, request, reply);
      });
}

}  // namespace openshell::api
