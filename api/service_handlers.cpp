// Services of sandboxes: exposed, listed, deleted. The rows lie beside their sandbox and are deleted with it.
#include <absl/strings/match.h>

#include "api/errors.hpp"
#include "api/handlers.hpp"
#include "api/names.hpp"
#include "api/service_endpoint.hpp"
#include "api/store_call.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "observability/text.hpp"
#include "storage/types.hpp"

namespace openshell::api {

using namespace openshell::v1;
using storage::Transaction;

namespace {

using Shared = std::shared_ptr<const ServiceHandlerOptions>;

/// Sandbox and service of a request, as they are written.
absl::Status check_names(const std::string& sandbox, const std::string& service) {
  if (sandbox.empty()) return invalid_field("sandbox", "sandbox is required");
  if (auto status = check_routable("sandbox", sandbox); !status.ok()) return status;
  return check_routable("service", service);
}

/// The id of the sandbox; NOT_FOUND `sandbox not found`.
absl::StatusOr<std::string> sandbox_id(Transaction& tx, const std::string& workspace, const std::string& sandbox) {
  auto row = tx.get_by_name(storage::types::kSandbox, workspace, sandbox);
  if (!row.ok()) return from_storage("fetch sandbox", row.status());
  if (!*row) return absl::NotFoundError("sandbox not found");
  return (*row)->id;
}

absl::Status fill(const ServiceHandlerOptions& options, const storage::Object& row, ServiceEndpointResponse& response) {
  auto endpoint = service_from_row(row);
  if (!endpoint.ok()) return from_storage("fetch service", endpoint.status());
  response.set_url(options.address().url(row.workspace, endpoint->sandbox(), endpoint->name()));
  *response.mutable_endpoint() = *std::move(endpoint);
  return absl::OkStatus();
}

absl::Status expose_in(Transaction& tx, const ServiceHandlerOptions& options, const std::string& workspace,
                       const ExposeServiceRequest& request, ServiceEndpointResponse& response) {
  auto id = sandbox_id(tx, workspace, request.sandbox());
  if (!id.ok()) return id.status();
  auto endpoint = new_service(workspace, *id, request.sandbox(), request.name(), request.target_port(), request.authorization_mode());
  auto before = tx.get_by_name(storage::types::kServiceEndpoint, workspace, endpoint.metadata().name());
  if (!before.ok()) return from_storage("expose service", before.status());
  absl::StatusOr<storage::Object> row = absl::UnknownError("not written");
  if (*before) {
    endpoint.mutable_metadata()->set_id((*before)->id);
    endpoint.mutable_metadata()->set_resource_version((*before)->resource_version);
    row = tx.update(to_row(endpoint));
  } else {
    row = tx.create(to_row(endpoint));
  }
  if (absl::IsAlreadyExists(row.status())) return absl::AbortedError("the service was exposed concurrently; try again");
  if (!row.ok()) return from_storage("expose service", row.status());
  return fill(options, *row, response);
}

void expose(const Shared& options, const Context& ctx, const ExposeServiceRequest& request, const Reply<ServiceEndpointResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  answer_in(Access::kWrite, *options->store, reply,
            [ctx, options, ws = *workspace, request](Transaction& tx, ServiceEndpointResponse& response) -> absl::Status {
              if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kUser); !status.ok()) return status;
              if (auto status = check_names(request.sandbox(), request.name()); !status.ok()) return status;
              if (auto status = check_service(request.name(), request.target_port(), request.authorization_mode()); !status.ok())
                return status;
              if (auto status = require_workspace(tx, ws, WorkspaceState::kActive); !status.ok()) return status;
              return expose_in(tx, *options, ws, request, response);
            });
}

void get(const Shared& options, const Context& ctx, const GetServiceRequest& request, const Reply<ServiceEndpointResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  answer_in(Access::kRead, *options->store, reply,
            [ctx, options, ws = *workspace, request](Transaction& tx, ServiceEndpointResponse& response) -> absl::Status {
              if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kUser); !status.ok()) return status;
              if (auto status = check_names(request.sandbox(), request.name()); !status.ok()) return status;
              if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
              if (auto id = sandbox_id(tx, ws, request.sandbox()); !id.ok()) return id.status();
              auto row = tx.get_by_name(storage::types::kServiceEndpoint, ws, service_row_name(request.sandbox(), request.name()));
              if (!row.ok()) return from_storage("fetch service", row.status());
              if (!*row) return absl::NotFoundError("service endpoint not found");
              return fill(*options, **row, response);
            });
}

void list(const Shared& options, const Context& ctx, const ListServicesRequest& request, const Reply<ListServicesResponse>& reply) {
  auto workspace = workspace_or_all(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (!*workspace && !request.sandbox().empty())
    return reply.fail(invalid_field("sandbox", "sandbox filter is not supported with all_workspaces"));
  auto size = page_size(request.page_size());
  if (!size.ok()) return reply.fail(size.status());
  const std::string binding = cat("ListServices\n", *workspace ? **workspace : std::string{"*"}, "\n", request.sandbox());
  auto cursor = options->store->parse_page_token(binding, request.page_token());
  if (!cursor.ok()) return reply.fail(invalid_field("page_token", to_std(cursor.status().message())));
  storage::ListQuery query;
  query.type = storage::types::kServiceEndpoint;
  query.workspace = *workspace;
  query.after = *std::move(cursor);
  query.limit = *size;
  answer_in(Access::kRead, *options->store, reply,
            [ctx, options, query, binding, sandbox = request.sandbox()](Transaction& tx, ListServicesResponse& response) -> absl::Status {
              auto wanted = query;
              auto allowed =
                  query.workspace ? authorize_in(tx, *ctx, *query.workspace, WorkspaceRole::kUser) : require_platform_admin(*ctx);
              if (!allowed.ok()) return allowed;
              if (query.workspace) {
                if (auto status = require_workspace(tx, *query.workspace, WorkspaceState::kAny); !status.ok()) return status;
              }
              if (!sandbox.empty()) {
                auto id = sandbox_id(tx, *query.workspace, sandbox);
                if (!id.ok()) return id.status();
                wanted.scope = *id;
              }
              auto page = tx.list(wanted);
              if (!page.ok()) return from_storage("list services", page.status());
              for (const auto& row : page->objects) {
                if (auto status = fill(*options, row, *response.add_services()); !status.ok()) return status;
              }
              if (page->next) response.set_next_page_token(options->store->page_token(binding, *page->next));
              return absl::OkStatus();
            });
}

void remove(const Shared& options, const Context& ctx, const DeleteServiceRequest& request, const Reply<DeleteServiceResponse>& reply) {
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  answer_in(Access::kWrite, *options->store, reply,
            [ctx, ws = *workspace, request](Transaction& tx, DeleteServiceResponse& response) -> absl::Status {
              if (auto status = authorize_in(tx, *ctx, ws, WorkspaceRole::kUser); !status.ok()) return status;
              if (auto status = check_names(request.sandbox(), request.name()); !status.ok()) return status;
              if (auto status = require_workspace(tx, ws, WorkspaceState::kAny); !status.ok()) return status;
              if (auto id = sandbox_id(tx, ws, request.sandbox()); !id.ok()) return id.status();
              auto row = tx.get_by_name(storage::types::kServiceEndpoint, ws, service_row_name(request.sandbox(), request.name()));
              if (!row.ok()) return from_storage("delete service", row.status());
              if (!*row) {
                response.set_outcome(DELETION_OUTCOME_ALREADY_ABSENT);
                return request.allow_missing() ? absl::OkStatus() : absl::NotFoundError("service endpoint not found");
              }
              response.set_outcome(DELETION_OUTCOME_COMPLETED);
              auto gone = tx.erase(storage::types::kServiceEndpoint, (*row)->id);
              return gone.ok() ? absl::OkStatus() : from_storage("delete service", gone.status());
            });
}

}  // namespace

void add_service_handlers(Router& router, ServiceHandlerOptions given) {
  const auto options = std::make_shared<const ServiceHandlerOptions>(std::move(given));
  router.unary<ExposeServiceRequest, ServiceEndpointResponse>(
      "ExposeService", [options](const Context& ctx, const ExposeServiceRequest& request, const Reply<ServiceEndpointResponse>& reply) {
        expose(options, ctx, request, reply);
      });
  router.unary<GetServiceRequest, ServiceEndpointResponse>(
      "GetService", [options](const Context& ctx, const GetServiceRequest& request, const Reply<ServiceEndpointResponse>& reply) {
        get(options, ctx, request, reply);
      });
  router.unary<ListServicesRequest, ListServicesResponse>(
      "ListServices", [options](const Context& ctx, const ListServicesRequest& request, const Reply<ListServicesResponse>& reply) {
        list(options, ctx, request, reply);
      });
  router.unary<DeleteServiceRequest, DeleteServiceResponse>(
      "DeleteService", [options](const Context& ctx, const DeleteServiceRequest& request, const Reply<DeleteServiceResponse>& reply) {
        remove(options, ctx, request, reply);
      });
}

}  // namespace openshell::api
