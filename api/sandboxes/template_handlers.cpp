// Stored workload templates: made, shown, listed and deleted; never changed.
#include "api/sandboxes/template_handlers.hpp"

#include "actors/gateway/workload_template.hpp"

namespace openshell::api {
namespace {

using storage::Transaction;

void create(const PlanePtr& plane, const Context& ctx, pb::CreateSandboxTemplateRequest request,
            const Reply<pb::SandboxTemplateResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  auto response = std::make_shared<pb::SandboxTemplateResponse>();
  plane->store->write(
      [ctx, ws = *workspace, request = std::move(request), response](Transaction& tx) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kAdmin); !status.ok()) return status;
        if (auto status = require_workspace(tx, ws, WorkspaceState::kActive); !status.ok()) return status;
        if (auto status = gateway::check_workload_template(request, ws); !status.ok()) return status;
        auto row =
            tx.create_if_count_below(gateway::to_row(request.template_(), ws, storage::new_uuid()), gateway::kMaxTemplatesPerWorkspace);
        if (absl::IsAlreadyExists(row.status())) return absl::AlreadyExistsError("sandbox template already exists");
        if (absl::IsResourceExhausted(row.status())) {
          return absl::ResourceExhaustedError(
              cat("workspace has reached the maximum of ", gateway::kMaxTemplatesPerWorkspace, " sandbox templates"));
        }
        if (!row.ok()) return from_storage("create sandbox template", row.status());
        auto stored = gateway::template_from_row(*row);
        if (stored.ok()) *response->mutable_template_() = *std::move(stored);
        return stored.status();
      },
      [response, reply](const absl::Status& status) { status.ok() ? reply.ok(*response) : reply.fail(status); });
}

void get(const PlanePtr& plane, const Context& ctx, const pb::GetSandboxTemplateRequest& request,
         const Reply<pb::SandboxTemplateResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  auto response = std::make_shared<pb::SandboxTemplateResponse>();
  plane->store->read(
      [ctx, ws = *workspace, name = request.name(), response](Transaction& tx) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kUser); !status.ok()) return status;
        if (name.empty()) return invalid_field("name", "name is required");
        if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
        auto row = tx.get_by_name(gateway::kWorkloadTemplateType, ws, name);
        if (!row.ok()) return from_storage("fetch sandbox template", row.status());
        if (!*row) return absl::NotFoundError("sandbox template not found");
        auto found = gateway::template_from_row(**row);
        if (found.ok()) *response->mutable_template_() = *std::move(found);
        return found.status();
      },
      [response, reply](const absl::Status& status) { status.ok() ? reply.ok(*response) : reply.fail(status); });
}

void list(const PlanePtr& plane, const Context& ctx, const pb::ListSandboxTemplatesRequest& request,
          const Reply<pb::ListSandboxTemplatesResponse>& reply) {
  auto workspace = workspace_or_all(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  auto size = page_size(request.page_size());
  if (!size.ok()) return reply.fail(size.status());
  auto selector = storage::parse_label_selector(request.label_selector());
  if (!selector.ok()) return reply.fail(invalid_field("label_selector", to_std(selector.status().message())));
  const std::string binding = cat("ListSandboxTemplates\n", *workspace ? **workspace : std::string{"*"}, "\n", request.label_selector());
  auto cursor = plane->store->parse_page_token(binding, request.page_token());
  if (!cursor.ok()) return reply.fail(invalid_field("page_token", to_std(cursor.status().message())));
  storage::ListQuery query;
  query.type = gateway::kWorkloadTemplateType;
  query.workspace = *workspace;
  query.selector = *std::move(selector);
  query.after = *std::move(cursor);
  query.limit = *size;
  auto response = std::make_shared<pb::ListSandboxTemplatesResponse>();
  plane->store->read(
      [ctx, query, binding, response, store = plane->store](Transaction& tx) -> absl::Status {
        auto allowed = query.workspace ? authorize_in(tx, *ctx, *query.workspace, WorkspaceRole::kUser) : require_platform_admin(*ctx);
        if (!allowed.ok()) return allowed;
        if (query.workspace) {
          if (auto status = require_workspace(tx, *query.workspace, WorkspaceState::kAny); !status.ok()) return status;
        }
        auto page = tx.list(query);
        if (!page.ok()) return from_storage("list sandbox templates", page.status());
        for (const auto& row : page->objects) {
          auto found = gateway::template_from_row(row);
          if (!found.ok()) return found.status();
          *response->add_templates() = *std::move(found);
        }
        if (page->next) response->set_next_page_token(store->page_token(binding, *page->next));
        return absl::OkStatus();
      },
      [response, reply](const absl::Status& status) { status.ok() ? reply.ok(*response) : reply.fail(status); });
}

void remove(const PlanePtr& plane, const Context& ctx, const pb::DeleteSandboxTemplateRequest& request,
            const Reply<pb::DeleteSandboxTemplateResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  auto response = std::make_shared<pb::DeleteSandboxTemplateResponse>();
  plane->store->write(
      [ctx, ws = *workspace, name = request.name(), missing_is_fine = request.allow_missing(), response](Transaction& tx) -> absl::Status {
        if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kAdmin); !status.ok()) return status;
        if (name.empty()) return invalid_field("name", "name is required");
        if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
        auto row = tx.get_by_name(gateway::kWorkloadTemplateType, ws, name);
        if (!row.ok()) return from_storage("fetch sandbox template", row.status());
        response->set_outcome(*row ? pb::DELETION_OUTCOME_COMPLETED : pb::DELETION_OUTCOME_ALREADY_ABSENT);
        if (!*row) return missing_is_fine ? absl::OkStatus() : absl::NotFoundError("sandbox template not found");
        auto erased = tx.erase(gateway::kWorkloadTemplateType, (*row)->id, (*row)->resource_version);
        return erased.ok() ? absl::OkStatus() : from_storage("delete sandbox template", erased.status());
      },
      [response, reply](const absl::Status& status) { status.ok() ? reply.ok(*response) : reply.fail(status); });
}

}  // namespace

void add_template_handlers(Router& router, const PlanePtr& plane) {
  router.unary<pb::CreateSandboxTemplateRequest, pb::SandboxTemplateResponse>(
      "CreateSandboxTemplate", [=](Context ctx, pb::CreateSandboxTemplateRequest request, const Reply<pb::SandboxTemplateResponse>& reply) {
        create(plane, ctx, std::move(request), reply);
      });
  router.unary<pb::GetSandboxTemplateRequest, pb::SandboxTemplateResponse>(
      "GetSandboxTemplate", [=](Context ctx, const pb::GetSandboxTemplateRequest& request,
                                const Reply<pb::SandboxTemplateResponse>& reply) { get(plane, ctx, request, reply); });
  router.unary<pb::ListSandboxTemplatesRequest, pb::ListSandboxTemplatesResponse>(
      "ListSandboxTemplates", [=](Context ctx, const pb::ListSandboxTemplatesRequest& request,
                                  const Reply<pb::ListSandboxTemplatesResponse>& reply) { list(plane, ctx, request, reply); });
  router.unary<pb::DeleteSandboxTemplateRequest, pb::DeleteSandboxTemplateResponse>(
      "DeleteSandboxTemplate", [=](Context ctx, const pb::DeleteSandboxTemplateRequest& request,
                                   const Reply<pb::DeleteSandboxTemplateResponse>& reply) { remove(plane, ctx, request, reply); });
}

}  // namespace openshell::api
