// Members of a workspace: who has which role in it. Counts where roles are configured.
#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/names.hpp"
#include "api/store_call.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::api {

using namespace openshell::v1;
using storage::Transaction;

namespace {

constexpr std::uint64_t kMaxMembers = 1000;  // of one workspace

absl::StatusOr<WorkspaceMember> from_row(const storage::Object& row) {
  WorkspaceMember out;
  if (!out.ParseFromString(row.payload)) return absl::InternalError(cat("a member of workspace '", row.workspace, "' can not be read"));
  out.mutable_metadata()->set_resource_version(row.resource_version);
  set_time_ms(*out.mutable_metadata()->mutable_created_time(), row.created_at_ms);
  return out;
}

absl::Status check_subject(std::string_view subject) {
  if (subject.empty()) return invalid_field("principal_subject", "principal_subject is required");
  if (subject.size() > kMaxSubjectBytes)
    return invalid_field("principal_subject",
                         cat("principal_subject exceeds maximum length (", subject.size(), " > ", kMaxSubjectBytes, ")"));
  return absl::OkStatus();
}

absl::Status insert(Transaction& tx, const std::string& workspace, const AddWorkspaceMemberRequest& request,
                    AddWorkspaceMemberResponse& response) {
  WorkspaceMember member;
  member.mutable_metadata()->set_id(storage::new_uuid());
  member.mutable_metadata()->set_name(request.principal_subject());
  member.mutable_metadata()->set_workspace(workspace);
  member.set_principal_subject(request.principal_subject());
  member.set_role(request.role());
  storage::Object object;
  object.type = storage::types::kWorkspaceMember;
  object.id = member.metadata().id();
  object.workspace = workspace;
  object.name = request.principal_subject();
  object.status = request.role() == WORKSPACE_ROLE_ADMIN ? "admin" : "user";
  object.payload = member.SerializeAsString();
  auto row = tx.create_if_count_below(std::move(object), kMaxMembers);
  if (absl::IsAlreadyExists(row.status())) return absl::AlreadyExistsError("member already exists in this workspace");
  if (absl::IsResourceExhausted(row.status()))
    return absl::ResourceExhaustedError(cat("workspace has reached the maximum of ", kMaxMembers, " members"));
  if (!row.ok()) return from_storage("add workspace member", row.status());
  auto made = from_row(*row);
  if (!made.ok()) return made.status();
  *response.mutable_member() = *std::move(made);
  return absl::OkStatus();
}

void add(storage::Store& store, const Context& ctx, const AddWorkspaceMemberRequest& request,
         const Reply<AddWorkspaceMemberResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  answer_in(
      Access::kWrite, store, reply, [ctx, ws = *workspace, request](Transaction& tx, AddWorkspaceMemberResponse& response) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kAdmin); !status.ok()) return status;
        if (auto status = check_subject(request.principal_subject()); !status.ok()) return status;
        if (request.role() != WORKSPACE_ROLE_USER && request.role() != WORKSPACE_ROLE_ADMIN)
          return invalid_field("role", cat("role must be USER or ADMIN, not ",
                                           request.role() == WORKSPACE_ROLE_UNSPECIFIED ? "UNSPECIFIED" : std::to_string(request.role())));
        if (request.role() == WORKSPACE_ROLE_ADMIN && !ctx->platform_admin())
          return absl::PermissionDeniedError("only platform admins can assign the workspace admin role");
        if (auto status = require_workspace(tx, ws, WorkspaceState::kActive); !status.ok()) return status;
        return insert(tx, ws, request, response);
      });
}

void remove(storage::Store& store, const Context& ctx, const RemoveWorkspaceMemberRequest& request,
            const Reply<RemoveWorkspaceMemberResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  answer_in(Access::kWrite, store, reply,
            [ctx, ws = *workspace, request](Transaction& tx, RemoveWorkspaceMemberResponse& response) -> absl::Status {
              if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kAdmin); !status.ok()) return status;
              if (auto status = check_subject(request.principal_subject()); !status.ok()) return status;
              if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
              auto row = tx.get_by_name(storage::types::kWorkspaceMember, ws, request.principal_subject());
              if (!row.ok()) return from_storage("remove workspace member", row.status());
              if (!*row) {
                response.set_outcome(DELETION_OUTCOME_ALREADY_ABSENT);
                return request.allow_missing() ? absl::OkStatus() : absl::NotFoundError("member not found in this workspace");
              }
              response.set_outcome(DELETION_OUTCOME_COMPLETED);
              auto gone = tx.erase(storage::types::kWorkspaceMember, (*row)->id);
              return gone.ok() ? absl::OkStatus() : from_storage("remove workspace member", gone.status());
            });
}

void list(storage::Store& store, const Context& ctx, const ListWorkspaceMembersRequest& request,
          const Reply<ListWorkspaceMembersResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  auto size = page_size(request.page_size());
  if (!size.ok()) return reply.fail(size.status());
  const std::string binding = cat("ListWorkspaceMembers\n", *workspace);
  auto cursor = store.parse_page_token(binding, request.page_token());
  if (!cursor.ok()) return reply.fail(invalid_field("page_token", to_std(cursor.status().message())));
  storage::ListQuery query;
  query.type = storage::types::kWorkspaceMember;
  query.workspace = *workspace;
  query.after = *std::move(cursor);
  query.limit = *size;
  answer_in(Access::kRead, store, reply,
            [ctx, query, binding, &store](Transaction& tx, ListWorkspaceMembersResponse& response) -> absl::Status {
              if (auto status = authorize_in(tx, *ctx, *query.workspace, WorkspaceRole::kUser); !status.ok()) return status;
              if (auto status = require_workspace(tx, *query.workspace, WorkspaceState::kAny); !status.ok()) return status;
              auto page = tx.list(query);
              if (!page.ok()) return from_storage("list workspace members", page.status());
              for (const auto& row : page->objects) {
                auto member = from_row(row);
                if (!member.ok()) return member.status();
                *response.add_members() = *std::move(member);
              }
              if (page->next) response.set_next_page_token(store.page_token(binding, *page->next));
              return absl::OkStatus();
            });
}

}  // namespace

void add_member_handlers(Router& router, storage::Store* store) {
  router.unary<AddWorkspaceMemberRequest, AddWorkspaceMemberResponse>(
      "AddWorkspaceMember", [store](const Context& ctx, const AddWorkspaceMemberRequest& request,
                                    const Reply<AddWorkspaceMemberResponse>& reply) { add(*store, ctx, request, reply); });
  router.unary<RemoveWorkspaceMemberRequest, RemoveWorkspaceMemberResponse>(
      "RemoveWorkspaceMember", [store](const Context& ctx, const RemoveWorkspaceMemberRequest& request,
                                       const Reply<RemoveWorkspaceMemberResponse>& reply) { remove(*store, ctx, request, reply); });
  router.unary<ListWorkspaceMembersRequest, ListWorkspaceMembersResponse>(
      "ListWorkspaceMembers", [store](const Context& ctx, const ListWorkspaceMembersRequest& request,
                                      const Reply<ListWorkspaceMembersResponse>& reply) { list(*store, ctx, request, reply); });
}

}  // namespace openshell::api
