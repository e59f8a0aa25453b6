#include "api/workspace_scope.hpp"

#include <algorithm>

#include "api/errors.hpp"
#include "datamodel.pb.h"
#include "observability/text.hpp"

namespace openshell::api {

using datamodel::v1::Workspace;
using datamodel::v1::WorkspaceSelector;

absl::StatusOr<std::string> single_workspace(const WorkspaceSelector& scope) {
  if (scope.selection_case() == WorkspaceSelector::kAllWorkspaces)
    return invalid_field("workspace_scope", "workspace_scope must name one workspace for this call");
  if (scope.workspace().empty()) return invalid_field("workspace_scope", "workspace_scope.workspace is required (interface version 0.1.5)");
  return scope.workspace();
}

absl::StatusOr<std::optional<std::string>> workspace_or_all(const WorkspaceSelector& scope) {
  if (scope.selection_case() == WorkspaceSelector::kAllWorkspaces) return std::optional<std::string>{};
  auto workspace = single_workspace(scope);
  if (!workspace.ok()) return workspace.status();
  return std::optional<std::string>{*std::move(workspace)};
}

absl::Status authorize_in(storage::Transaction& tx, const CallContext& ctx, std::string_view workspace, WorkspaceRole minimum) {
  std::optional<WorkspaceRole> membership;
  if (const Identity* who = ctx.identity(); who != nullptr && !ctx.platform_admin()) {
    auto row = tx.get_by_name(storage::types::kWorkspaceMember, workspace, who->subject);
    if (!row.ok()) return absl::InternalError(cat("membership lookup failed: ", row.status().message()));
    if (*row) membership = (*row)->status == "admin" ? WorkspaceRole::kAdmin : WorkspaceRole::kUser;
  }
  return authorize_workspace(ctx, workspace, minimum, membership);
}

absl::Status require_workspace(storage::Transaction& tx, std::string_view workspace, WorkspaceState state) {
  auto row = tx.get_by_name(storage::types::kWorkspace, "", workspace);
  if (!row.ok()) return from_storage("fetch workspace", row.status());
  if (!*row) return absl::NotFoundError(cat("workspace '", workspace, "' not found"));
  Workspace stored;
  if (!stored.ParseFromString((*row)->payload)) return absl::InternalError(cat("workspace '", workspace, "' can not be read"));
  if (state == WorkspaceState::kActive && stored.metadata().has_deletion_time())
    return absl::FailedPreconditionError(cat("workspace '", workspace, "' is being deleted"));
  return absl::OkStatus();
}

absl::Status ensure_default_workspace(storage::Store& store) {
  return store.write_and_wait([](storage::Transaction& tx) -> absl::Status {
    auto row = tx.get_by_name(storage::types::kWorkspace, "", "default");
    if (!row.ok()) return row.status();
    if (*row) return absl::OkStatus();
    Workspace workspace;
    workspace.mutable_metadata()->set_id(storage::new_uuid());
    workspace.mutable_metadata()->set_name("default");
    workspace.mutable_status()->set_phase(datamodel::v1::WORKSPACE_PHASE_ACTIVE);
    storage::Object object;
    object.type = storage::types::kWorkspace;
    object.id = workspace.metadata().id();
    object.name = "default";
    object.payload = workspace.SerializeAsString();
    return tx.create(std::move(object)).status();
  });
}

absl::Status check_request_id(std::string_view id) {
  if (id.empty()) return absl::OkStatus();
  bool nil = true;
  bool fits = id.size() == 36;
  for (std::size_t i = 0; fits && i < id.size(); ++i) {
    const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (id[i] >= '0' && id[i] <= '9') || (id[i] >= 'a' && id[i] <= 'f') || (id[i] >= 'A' && id[i] <= 'F');
    fits = hyphen ? id[i] == '-' : hex;
    nil = nil && (hyphen || id[i] == '0');
  }
  return fits && !nil ? absl::OkStatus() : invalid_field("request_id", "must be a nonzero hyphenated UUID (36 characters)");
}

absl::StatusOr<std::size_t> page_size(std::int32_t wanted) {
  if (wanted < 0) return invalid_field("page_size", cat("page_size must not be negative, got ", wanted));
  if (wanted == 0) return storage::kDefaultPageSize;
  return std::min(static_cast<std::size_t>(wanted), storage::kMaxPageSize);
}

}  // namespace openshell::api
