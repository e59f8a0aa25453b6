// A policy as text for people and tools. parse_policy(to_yaml(p)) gives p back for every canonical p without gateway markers, so that what
// somebody reads, stores unchanged and sends again makes no new revision. Pure, any thread.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// INVALID_ARGUMENT for a version other than 0 or 1, a port above 65535, or an enum number that has no spelling.
[[nodiscard]] absl::StatusOr<std::string> to_yaml(const pb::SandboxPolicy& policy);

/// The same document as JSON, same key names and order, two blanks of indentation where `pretty`.
[[nodiscard]] absl::StatusOr<std::string> to_json(const pb::SandboxPolicy& policy, bool pretty = true);

}  // namespace openshell::policy
