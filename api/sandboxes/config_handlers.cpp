// Policies and settings, of one sandbox and of the whole gateway; proposals.
#include "api/sandboxes/plane.hpp"

namespace openshell::api {
namespace {

namespace sb = openshell::sandbox::v1;

constexpr const char* kForeign = "sandbox not found or not owned by caller";

/// A dual call by the supervisor: the principal decides. A workspace or name that is given must be its own; unknown and foreign look alike.
template <class Scope>
void with_principal(const PlanePtr& plane, const Context& ctx, const Scope& scope, const std::string& name,
                    std::function<void(std::shared_ptr<SandboxHandle>)> then, std::function<void(absl::Status)> failed) {
  ask<gateway::Handed<SandboxHandle>>(
      plane->system, plane->actors.index,
      [=, workspace = scope.workspace()](gateway::Handed<SandboxHandle> found) {
        if (!found.value.ok()) return failed(absl::PermissionDeniedError(kForeign));
        const auto& handle = **found.value;
        const bool own = (name.empty() || name == handle.name) && (workspace.empty() || workspace == handle.workspace);
        own ? then(*found.value) : failed(absl::PermissionDeniedError(kForeign));
      },
      gateway::find_atom::value, ctx->sandbox()->id.str());
}

template <class Request, class Response>
void dual(const PlanePtr& plane, const Context& ctx, std::shared_ptr<const Request> request, const std::string& name,
          const std::string& field, WorkspaceRole role, const Reply<Response>& reply) {
  const auto then = [=](const std::shared_ptr<SandboxHandle>& found) {
    pass_on<Request, Response>(plane, ctx, found->entity, request, reply);
  };
  const auto failed = [reply](const absl::Status& status) { reply.fail(status); };
  if (ctx->sandbox() != nullptr) return with_principal(plane, ctx, request->workspace_scope(), name, then, failed);
  with_sandbox(plane, ctx, request->workspace_scope(), name, field, role, then, failed);
}

/// The same request about one sandbox, or, with `global`, about the gateway.
template <class Request, class Response>
void policies(Router& router, const PlanePtr& plane, std::string_view method) {
  router.unary<Request, Response>(method, [=](Context ctx, Request request, const Reply<Response>& reply) {
    auto shared = std::make_shared<const Request>(std::move(request));
    if (shared->global()) {
      if (auto status = require_platform_admin(*ctx); !status.ok()) return reply.fail(status);
      return pass_on<Request, Response>(plane, ctx, plane->actors.global, shared, reply);
    }
    with_sandbox(
        plane, ctx, shared->workspace_scope(), shared->sandbox(), "sandbox", WorkspaceRole::kUser,
        [=](const std::shared_ptr<SandboxHandle>& found) { pass_on<Request, Response>(plane, ctx, found->entity, shared, reply); },
        [reply](const absl::Status& status) { reply.fail(status); });
  });
}

void update(const PlanePtr& plane, const Context& ctx, pb::UpdateConfigRequest request, const Reply<pb::UpdateConfigResponse>& reply) {
  if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
  auto shared = std::make_shared<const pb::UpdateConfigRequest>(std::move(request));
  if (shared->global()) {
    if (ctx->sandbox() != nullptr) return reply.fail(absl::PermissionDeniedError("sandbox callers cannot mutate global config"));
    if (auto status = require_platform_admin(*ctx); !status.ok()) return reply.fail(status);
    return pass_on<pb::UpdateConfigRequest, pb::UpdateConfigResponse>(plane, ctx, plane->actors.global, shared, reply);
  }
  if (ctx->sandbox() == nullptr && shared->sandbox().empty())
    return reply.fail(invalid_field("sandbox", "sandbox is required for sandbox-scoped updates"));
  dual<pb::UpdateConfigRequest, pb::UpdateConfigResponse>(plane, ctx, shared, shared->sandbox(), "sandbox", WorkspaceRole::kAdmin, reply);
}

}  // namespace

void add_config_handlers(Router& router, const PlanePtr& plane) {
  router.unary<pb::UpdateConfigRequest, pb::UpdateConfigResponse>(
      "UpdateConfig", [=](Context ctx, pb::UpdateConfigRequest request, const Reply<pb::UpdateConfigResponse>& reply) {
        update(plane, ctx, std::move(request), reply);
      });
  router.unary<sb::GetSandboxConfigRequest, sb::GetSandboxConfigResponse>(
      "GetSandboxConfig", [=](Context ctx, sb::GetSandboxConfigRequest request, const Reply<sb::GetSandboxConfigResponse>& reply) {
        auto shared = std::make_shared<const sb::GetSandboxConfigRequest>(std::move(request));
        dual<sb::GetSandboxConfigRequest, sb::GetSandboxConfigResponse>(plane, ctx, shared, shared->name(), "name", WorkspaceRole::kUser,
                                                                        reply);
      });
  router.unary<sb::GetGatewayConfigRequest, sb::GetGatewayConfigResponse>(
      "GetGatewayConfig", [=](Context ctx, sb::GetGatewayConfigRequest request, const Reply<sb::GetGatewayConfigResponse>& reply) {
        pass_on<sb::GetGatewayConfigRequest, sb::GetGatewayConfigResponse>(
            plane, ctx, plane->actors.global, std::make_shared<const sb::GetGatewayConfigRequest>(std::move(request)), reply);
      });
  policies<pb::ListSandboxPoliciesRequest, pb::ListSandboxPoliciesResponse>(router, plane, "ListSandboxPolicies");
  policies<pb::GetSandboxPolicyStatusRequest, pb::GetSandboxPolicyStatusResponse>(router, plane, "GetSandboxPolicyStatus");
  router.unary<pb::SubmitPolicyAnalysisRequest, pb::SubmitPolicyAnalysisResponse>(
      "SubmitPolicyAnalysis",
      [=](Context ctx, pb::SubmitPolicyAnalysisRequest request, const Reply<pb::SubmitPolicyAnalysisResponse>& reply) {
        if (request.name().empty()) return reply.fail(invalid_field("name", "name is required"));
        auto shared = std::make_shared<const pb::SubmitPolicyAnalysisRequest>(std::move(request));
        with_principal(
            plane, ctx, shared->workspace_scope(), shared->name(),
            [=](const std::shared_ptr<SandboxHandle>& found) {
              pass_on<pb::SubmitPolicyAnalysisRequest, pb::SubmitPolicyAnalysisResponse>(plane, ctx, found->entity, shared, reply);
            },
            [reply](const absl::Status& status) { reply.fail(status); });
      });
}

}  // namespace openshell::api
