// Where a policy comes from that a command only reads: a file, a sandbox, one of its stored revisions.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "cli/context.hpp"

namespace openshell::sandbox::v1 {
class SandboxPolicy;
}

namespace openshell::cli {

/// The effective policy of a sandbox, canonical.
absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> effective_policy(Context& context, const std::string& sandbox);

/// `FILE`, `@NAME` (effective) or `@NAME:REVISION` (stored).
absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> policy_from(Context& context, const std::string& word);

}  // namespace openshell::cli
