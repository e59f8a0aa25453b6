#include "api/sandboxes/plane.hpp"

#include "datamodel.pb.h"

namespace openshell::api {

Caller caller_of(const CallContext& ctx) {
  Caller caller;
  if (const auto* sandbox = ctx.sandbox()) {
    caller.kind = Caller::Kind::supervisor;
    caller.sandbox_id = sandbox->id.str();
    caller.subject = sandbox->id.str();
    return caller;
  }
  if (const auto* identity = ctx.identity()) caller.subject = identity->subject;
  caller.platform_admin = ctx.platform_admin();
  return caller;
}

void with_workspace(const PlanePtr& plane, const Context& ctx, const openshell::datamodel::v1::WorkspaceSelector& scope, WorkspaceRole role,
                    WorkspaceState state, std::function<void(std::string)> then, std::function<void(absl::Status)> failed) {
  auto workspace = single_workspace(scope);
  if (!workspace.ok()) return failed(workspace.status());
  plane->store->read(
      [ctx, name = *workspace, role, state](storage::Transaction& tx) {
        if (auto status = authorize_in(tx, *ctx, name, role); !status.ok()) return status;
        return require_workspace(tx, name, state);
      },
      [name = *workspace, then = std::move(then), failed = std::move(failed)](const absl::Status& allowed) {
        allowed.ok() ? then(name) : failed(allowed);
      });
}

void with_sandbox(const PlanePtr& plane, const Context& ctx, const openshell::datamodel::v1::WorkspaceSelector& scope,
                  const std::string& name, const std::string& field, WorkspaceRole role,
                  std::function<void(std::shared_ptr<SandboxHandle>)> then, std::function<void(absl::Status)> failed) {
  if (name.empty()) return failed(invalid_field(field, cat(field, " is required")));
  const auto search = [plane, name, then = std::move(then)](const std::string& workspace, std::function<void(absl::Status)> missing) {
    ask<gateway::Handed<SandboxHandle>>(
        plane->system, plane->actors.index,
        [then, missing = std::move(missing)](gateway::Handed<SandboxHandle> found) {
          found.value.ok() ? then(*found.value) : missing(found.value.status());
        },
        gateway::find_atom::value, workspace, name);
  };
  const auto through_store = [=] {
    with_workspace(
        plane, ctx, scope, role, WorkspaceState::kAny, [search, failed](const std::string& workspace) { search(workspace, failed); },
        failed);
  };
  // A sandbox that is there has a workspace: who needs no membership asks the store only for the right word about one that is not.
  const auto workspace = single_workspace(scope);
  if (!ctx->platform_admin() || !workspace.ok()) return through_store();
  search(*workspace, [through_store](const absl::Status&) { through_store(); });
}

void with_own_sandbox(const PlanePtr& plane, const Context& ctx, const std::string& sandbox_id,
                      std::function<void(std::shared_ptr<SandboxHandle>)> then, std::function<void(absl::Status)> failed) {
  if (sandbox_id.empty()) return failed(invalid_field("sandbox_id", "sandbox_id is required"));
  if (auto status = require_sandbox(*ctx, SandboxId{sandbox_id}); !status.ok()) return failed(status);
  ask<gateway::Handed<SandboxHandle>>(
      plane->system, plane->actors.index,
      [then = std::move(then), failed](gateway::Handed<SandboxHandle> found) {
        found.value.ok() ? then(*found.value) : failed(found.value.status());
      },
      gateway::find_atom::value, sandbox_id);
}

absl::Status check_request_id(const std::string& request_id) {
  if (request_id.empty()) return absl::OkStatus();
  bool good = request_id.size() == 36;
  bool nil = true;
  for (std::size_t i = 0; good && i < request_id.size(); ++i) {
    const char c = request_id[i];
    const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
    good = hyphen ? c == '-' : std::isxdigit(static_cast<unsigned char>(c)) != 0;
    nil = nil && (c == '0' || c == '-');
  }
  return good && !nil ? absl::OkStatus() : invalid_field("request_id", "must be a nonzero hyphenated UUID (36 characters)");
}

}  // namespace openshell::api
