// Proposals: reading them, and deciding about them.
#include "api/sandboxes/plane.hpp"

namespace openshell::api {
namespace {

constexpr const char* kForeign = "sandbox not found or not owned by caller";

/// A call of a person about the proposals of one sandbox, passed to its entity.
template <class Request, class Response>
void pass_to_sandbox(const PlanePtr& plane, const Context& ctx, std::shared_ptr<const Request> request, WorkspaceRole role,
                     const Reply<Response>& reply) {
  with_sandbox(
      plane, ctx, request->workspace_scope(), request->sandbox(), "sandbox", role,
      [=](const std::shared_ptr<SandboxHandle>& found) { pass_on<Request, Response>(plane, ctx, found->entity, request, reply); },
      [reply](const absl::Status& status) { reply.fail(status); });
}

template <class Request, class Response>
void decision(Router& router, const PlanePtr& plane, std::string_view method) {
  router.unary<Request, Response>(method, [=](Context ctx, Request request, const Reply<Response>& reply) {
    if (auto status = check_request_id(request.request_id()); !status.ok()) return reply.fail(status);
    pass_to_sandbox(plane, ctx, std::make_shared<const Request>(std::move(request)), WorkspaceRole::kAdmin, reply);
  });
}

/// The supervisor sees its own proposals only.
void get_own(const PlanePtr& plane, const Context& ctx, std::shared_ptr<const pb::GetDraftPolicyRequest> request,
             const Reply<pb::GetDraftPolicyResponse>& reply) {
  with_own_sandbox(
      plane, ctx, ctx->sandbox()->id.str(),
      [=](const std::shared_ptr<SandboxHandle>& found) {
        const auto& workspace = request->workspace_scope().workspace();
        const bool own =
            (request->sandbox().empty() || request->sandbox() == found->name) && (workspace.empty() || workspace == found->workspace);
        if (!own) return reply.fail(absl::PermissionDeniedError(kForeign));
        pass_on<pb::GetDraftPolicyRequest, pb::GetDraftPolicyResponse>(plane, ctx, found->entity, request, reply);
      },
      [reply](const absl::Status& status) { reply.fail(status); });
}

}  // namespace

void add_draft_handlers(Router& router, const PlanePtr& plane) {
  router.unary<pb::GetDraftPolicyRequest, pb::GetDraftPolicyResponse>(
      "GetDraftPolicy", [=](Context ctx, pb::GetDraftPolicyRequest request, const Reply<pb::GetDraftPolicyResponse>& reply) {
        auto shared = std::make_shared<const pb::GetDraftPolicyRequest>(std::move(request));
        ctx->sandbox() != nullptr ? get_own(plane, ctx, shared, reply) : pass_to_sandbox(plane, ctx, shared, WorkspaceRole::kUser, reply);
      });
  router.unary<pb::GetDraftHistoryRequest, pb::GetDraftHistoryResponse>(
      "GetDraftHistory", [=](Context ctx, pb::GetDraftHistoryRequest request, const Reply<pb::GetDraftHistoryResponse>& reply) {
        pass_to_sandbox(plane, ctx, std::make_shared<const pb::GetDraftHistoryRequest>(std::move(request)), WorkspaceRole::kUser, reply);
      });
  decision<pb::ApproveDraftChunkRequest, pb::ApproveDraftChunkResponse>(router, plane, "ApproveDraftChunk");
  decision<pb::ApproveAllDraftChunksRequest, pb::ApproveAllDraftChunksResponse>(router, plane, "ApproveAllDraftChunks");
  decision<pb::RejectDraftChunkRequest, pb::RejectDraftChunkResponse>(router, plane, "RejectDraftChunk");
  decision<pb::EditDraftChunkRequest, pb::EditDraftChunkResponse>(router, plane, "EditDraftChunk");
  decision<pb::UndoDraftChunkRequest, pb::UndoDraftChunkResponse>(router, plane, "UndoDraftChunk");
  decision<pb::ClearDraftChunksRequest, pb::ClearDraftChunksResponse>(router, plane, "ClearDraftChunks");
}

}  // namespace openshell::api
