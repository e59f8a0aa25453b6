#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

namespace openshell::sandbox::v1 {
class SandboxPolicy;
}

namespace openshell::cli {

/// Reads, checks and normalises a policy file. Every fault of it stands in the error, one line each: `FILE:LINE:COL: text`. Nothing is sent
/// anywhere when there is one. Warnings go to stderr.
absl::StatusOr<std::unique_ptr<sandbox::v1::SandboxPolicy>> load_policy_file(const std::string& path);

}  // namespace openshell::cli
