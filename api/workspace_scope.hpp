// Which workspace a request speaks of, and whether it may. Every handler with a `workspace_scope` starts here.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/call_context.hpp"
#include "storage/store.hpp"

namespace openshell::datamodel::v1 {
class WorkspaceSelector;
}

namespace openshell::api {

/// Of a call that needs one workspace: `workspace`, not empty. Absent, empty or `all_workspaces`: INVALID_ARGUMENT naming
/// `workspace_scope`. Never a default.
absl::StatusOr<std::string> single_workspace(const datamodel::v1::WorkspaceSelector& scope);
/// Of a list: a workspace, or nullopt for all of them.
absl::StatusOr<std::optional<std::string>> workspace_or_all(const datamodel::v1::WorkspaceSelector& scope);

/// Reads the caller's membership where roles are configured, then decides. Runs before anything of the workspace is looked up.
absl::Status authorize_in(storage::Transaction& tx, const CallContext& ctx, std::string_view workspace, WorkspaceRole minimum);

enum class WorkspaceState { kAny, kActive };
/// NOT_FOUND `workspace 'W' not found`; FAILED_PRECONDITION `workspace 'W' is being deleted` where it has to be active.
absl::Status require_workspace(storage::Transaction& tx, std::string_view workspace, WorkspaceState state);
/// Makes the workspace `default` where it is missing. At start-up.
absl::Status ensure_default_workspace(storage::Store& store);

/// `request_id` of a mutation: empty, or a UUID that is not nil, hyphenated, 36 characters. What it is for: api/admissions.hpp.
absl::Status check_request_id(std::string_view request_id);

/// 0 -> 100, above 1000 -> 1000, negative -> INVALID_ARGUMENT naming `page_size`.
absl::StatusOr<std::size_t> page_size(std::int32_t wanted);

}  // namespace openshell::api
