// The sandbox itself: create, look, list, stop, start, delete; its providers; and what its supervisor reports about it.
#include <absl/cleanup/cleanup.h>

#include "actors/gateway/workload_template.hpp"
#include "api/sandboxes/plane.hpp"
#include "api/sandboxes/template_handlers.hpp"

namespace openshell::api {
namespace {

using openshell::datamodel::v1::WorkspaceSelector;

/// Fills the request in from the stored template that it names.
absl::Status use_template(storage::Transaction& tx, const std::string& workspace, pb::CreateSandboxRequest& request) {
  if (auto status = gateway::check_template_use(request); !status.ok()) return status;
  auto row = tx.get_by_name(gateway::kWorkloadTemplateType, workspace, request.workload_template());
  if (!row.ok()) return from_storage("fetch sandbox template", row.status());
  if (!*row) return absl::NotFoundError("sandbox template not found");
  auto found = gateway::template_from_row(**row);
  if (!found.ok()) return found.status();
  gateway::expand_template(*found, request);
  return absl::OkStatus();
}

/// A user's call about one sandbox, answered by its entity.
template <class Request, class Response>
void by_name(Router& router, const PlanePtr& plane, std::string_view method, WorkspaceRole role, std::string field,
             const std::string& (Request::*name)() const) {
  router.unary<Request, Response>(method, [=](Context ctx, Request request, Reply<Response> reply) {
    auto shared = std::make_shared<const Request>(std::move(request));
    with_sandbox(
        plane, ctx, shared->workspace_scope(), ((*shared).*name)(), field, role,
        [=](const std::shared_ptr<SandboxHandle>& found) { pass_on<Request, Response>(plane, ctx, found->entity, shared, reply); },
        [reply](const absl::Status& status) { reply.fail(status); });
  });
}

/// The same with a request_id, whose format is checked.
template <class Request, class Response>
void by_name_mutating(Router& router, const PlanePtr& plane, std::string_view method, std::string field,
                      const std::string& (Request::*name)() const) {
  router.unary<Request, Response>(method, [=](Context ctx, Request request, Reply<Response> reply) {
    if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
    auto shared = std::make_shared<const Request>(std::move(request));
    with_sandbox(
        plane, ctx, shared->workspace_scope(), ((*shared).*name)(), field, WorkspaceRole::kUser,
        [=](const std::shared_ptr<SandboxHandle>& found) { pass_on<Request, Response>(plane, ctx, found->entity, shared, reply); },
        [reply](const absl::Status& status) { reply.fail(status); });
  });
}

/// A supervisor's report about its own sandbox.
template <class Request, class Response>
void by_id(Router& router, const PlanePtr& plane, std::string_view method) {
  router.unary<Request, Response>(method, [=](Context ctx, Request request, Reply<Response> reply) {
    auto shared = std::make_shared<const Request>(std::move(request));
    with_own_sandbox(
        plane, ctx, shared->sandbox_id(),
        [=](const std::shared_ptr<SandboxHandle>& found) { pass_on<Request, Response>(plane, ctx, found->entity, shared, reply); },
        [reply](const absl::Status& status) { reply.fail(status); });
  });
}

/// The addresses of the services that were asked for with the sandbox, by their names.
void add_urls(const Plane& plane, const pb::CreateSandboxRequest& request, pb::SandboxResponse& response) {
  if (request.service_exposures().empty() || !plane.service_address) return;
  const auto address = plane.service_address();
  const auto& metadata = response.sandbox().metadata();
  for (const auto& each : request.service_exposures())
    (*response.mutable_service_urls())[each.service()] = address.url(metadata.workspace(), metadata.name(), each.service());
}

void create(const PlanePtr& plane, const Context& ctx, pb::CreateSandboxRequest request, const Reply<pb::SandboxResponse>& reply) {
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  auto workspace = single_workspace(request.workspace_scope());
  if (!workspace.ok()) return reply.fail(workspace.status());
  auto expanded = std::make_shared<pb::CreateSandboxRequest>(std::move(request));
  plane->store->read(
      [ctx, name = *workspace, expanded](storage::Transaction& tx) {
        if (auto status = authorize_in(tx, *ctx, name, WorkspaceRole::kUser); !status.ok()) return status;
        if (auto status = require_workspace(tx, name, WorkspaceState::kActive); !status.ok()) return status;
        return expanded->workload_template().empty() ? absl::OkStatus() : use_template(tx, name, *expanded);
      },
      [=](const absl::Status& ready) {
        if (!ready.ok()) return reply.fail(ready);
        const std::shared_ptr<const pb::CreateSandboxRequest> shared = expanded;
        ask<gateway::Reply<pb::SandboxResponse>>(
            plane->system, plane->actors.index,
            [=](gateway::Reply<pb::SandboxResponse> answer) {
              if (!answer.value.ok()) return reply.fail(answer.value.status());
              pb::SandboxResponse response = **answer.value;
              add_urls(*plane, *shared, response);
              reply.ok(response);
            },
            Ask<pb::CreateSandboxRequest>{shared, caller_of(*ctx)});
      });
}

/// Asked most of all calls: who needs no membership is answered from memory, without a hop to another thread.
bool answered_at_once(const Plane& plane, const CallContext& ctx, const pb::GetSandboxRequest& request,
                      const Reply<pb::SandboxResponse>& reply) {
  if (!ctx.platform_admin()) return false;
  const auto workspace = single_workspace(request.workspace_scope());
  const auto shown = workspace.ok() ? plane.actors.identities->shown(*workspace, request.name()) : nullptr;
  if (shown == nullptr) return false;
  // Lent while it is written, which only reads it: a copy would cost more than all else.
  pb::SandboxResponse response;
  response.unsafe_arena_set_allocated_sandbox(const_cast<pb::Sandbox*>(shown.get()));
  const absl::Cleanup taken_back = [&response] { (void)response.unsafe_arena_release_sandbox(); };
  reply.ok(response);
  return true;
}

void get(const PlanePtr& plane, const Context& ctx, const pb::GetSandboxRequest& request, const Reply<pb::SandboxResponse>& reply) {
  if (answered_at_once(*plane, *ctx, request, reply)) return;
  with_sandbox(
      plane, ctx, request.workspace_scope(), request.name(), "name", WorkspaceRole::kUser,
      [=](const std::shared_ptr<SandboxHandle>& found) {
        ask<gateway::Reply<pb::Sandbox>>(
            plane->system, found->entity,
            [reply](gateway::Reply<pb::Sandbox> answer) {
              if (!answer.value.ok()) return reply.fail(answer.value.status());
              pb::SandboxResponse response;
              *response.mutable_sandbox() = **answer.value;
              reply.ok(response);
            },
            gateway::get_atom::value);
      },
      [reply](const absl::Status& status) { reply.fail(status); });
}

void list(const PlanePtr& plane, const Context& ctx, pb::ListSandboxesRequest request, const Reply<pb::ListSandboxesResponse>& reply) {
  auto scope = workspace_or_all(request.workspace_scope());
  if (!scope.ok()) return reply.fail(scope.status());
  auto shared = std::make_shared<const pb::ListSandboxesRequest>(std::move(request));
  const auto go = [=](const std::string& workspace) {
    ask<gateway::Reply<pb::ListSandboxesResponse>>(
        plane->system, plane->actors.index,
        [reply](gateway::Reply<pb::ListSandboxesResponse> answer) {
          answer.value.ok() ? reply.ok(**answer.value) : reply.fail(answer.value.status());
        },
        Ask<pb::ListSandboxesRequest>{shared, caller_of(*ctx)}, workspace);
  };
  if (*scope) {
    return with_workspace(plane, ctx, shared->workspace_scope(), WorkspaceRole::kUser, WorkspaceState::kAny, go,
                          [reply](const absl::Status& status) { reply.fail(status); });
  }
  if (!ctx->platform_admin()) return reply.fail(absl::PermissionDeniedError("platform admin role required for cross-workspace operations"));
  go({});
}

void remove(const PlanePtr& plane, const Context& ctx, pb::DeleteSandboxRequest request, const Reply<pb::DeleteSandboxResponse>& reply) {
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  if (request.name().empty()) return reply.fail(invalid_field("name", "name is required"));
  auto shared = std::make_shared<const pb::DeleteSandboxRequest>(std::move(request));
  const auto absent = [=](const absl::Status& status) {
    if (!shared->allow_missing() || !absl::IsNotFound(status)) return reply.fail(status);
    pb::DeleteSandboxResponse response;
    response.set_outcome(pb::DELETION_OUTCOME_ALREADY_ABSENT);
    reply.ok(response);
  };
  with_workspace(
      plane, ctx, shared->workspace_scope(), WorkspaceRole::kUser, WorkspaceState::kAny,
      [=](const std::string& workspace) {
        ask<gateway::Handed<SandboxHandle>>(
            plane->system, plane->actors.index,
            [=](gateway::Handed<SandboxHandle> found) {
              if (!found.value.ok()) return absent(found.value.status());
              pass_on<pb::DeleteSandboxRequest, pb::DeleteSandboxResponse>(plane, ctx, (*found.value)->entity, shared, reply);
            },
            gateway::find_atom::value, workspace, shared->name());
      },
      [reply](const absl::Status& status) { reply.fail(status); });  // a missing workspace is never hidden
}

}  // namespace

void add_unary_handlers(Router& router, const PlanePtr& plane) {
  add_template_handlers(router, plane);
  router.unary<pb::CreateSandboxRequest, pb::SandboxResponse>(
      "CreateSandbox", [=](Context ctx, pb::CreateSandboxRequest request, const Reply<pb::SandboxResponse>& reply) {
        create(plane, ctx, std::move(request), reply);
      });
  router.unary<pb::GetSandboxRequest, pb::SandboxResponse>(
      "GetSandbox",
      [=](Context ctx, const pb::GetSandboxRequest& request, const Reply<pb::SandboxResponse>& reply) { get(plane, ctx, request, reply); });
  router.unary<pb::ListSandboxesRequest, pb::ListSandboxesResponse>(
      "ListSandboxes", [=](Context ctx, pb::ListSandboxesRequest request, const Reply<pb::ListSandboxesResponse>& reply) {
        list(plane, ctx, std::move(request), reply);
      });
  router.unary<pb::DeleteSandboxRequest, pb::DeleteSandboxResponse>(
      "DeleteSandbox", [=](Context ctx, pb::DeleteSandboxRequest request, const Reply<pb::DeleteSandboxResponse>& reply) {
        remove(plane, ctx, std::move(request), reply);
      });
  by_name_mutating<pb::StopSandboxRequest, pb::SandboxResponse>(router, plane, "StopSandbox", "name", &pb::StopSandboxRequest::name);
  by_name_mutating<pb::StartSandboxRequest, pb::SandboxResponse>(router, plane, "StartSandbox", "name", &pb::StartSandboxRequest::name);
  by_name_mutating<pb::AttachSandboxProviderRequest, pb::AttachSandboxProviderResponse>(router, plane, "AttachSandboxProvider", "sandbox",
                                                                                        &pb::AttachSandboxProviderRequest::sandbox);
  by_name_mutating<pb::DetachSandboxProviderRequest, pb::DetachSandboxProviderResponse>(router, plane, "DetachSandboxProvider", "sandbox",
                                                                                        &pb::DetachSandboxProviderRequest::sandbox);
  by_name<pb::GetSandboxProviderStatusRequest, pb::GetSandboxProviderStatusResponse>(
      router, plane, "GetSandboxProviderStatus", WorkspaceRole::kUser, "sandbox", &pb::GetSandboxProviderStatusRequest::sandbox);
  by_id<pb::ReportPolicyStatusRequest, pb::ReportPolicyStatusResponse>(router, plane, "ReportPolicyStatus");
  by_id<pb::ReportSandboxConfigurationRequest, pb::ReportSandboxConfigurationResponse>(router, plane, "ReportSandboxConfiguration");
  by_id<pb::ReportProviderReadinessRequest, pb::ReportProviderReadinessResponse>(router, plane, "ReportProviderReadiness");
  by_id<pb::ReportEndpointStatusRequest, pb::ReportEndpointStatusResponse>(router, plane, "ReportEndpointStatus");
  by_id<pb::ReportMainProcessExitRequest, pb::ReportMainProcessExitResponse>(router, plane, "ReportMainProcessExit");
  by_id<pb::FinalizeMainProcessExitRequest, pb::FinalizeMainProcessExitResponse>(router, plane, "FinalizeMainProcessExit");
  by_id<pb::GetSandboxProviderEnvironmentRequest, pb::GetSandboxProviderEnvironmentResponse>(router, plane,
                                                                                             "GetSandboxProviderEnvironment");
}

}  // namespace openshell::api
