// What `rego` reads.
#pragma once

#include "policy/rego/workspace.hpp"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace openshell::rego_program {

/// Bytes of one file.
inline constexpr std::size_t kMaxFileBytes = 64U << 20;

absl::StatusOr<std::string> read_file(const std::string& path);
/// A document in JSON or, by the ending of its name, YAML.
absl::StatusOr<policy::rego::Value> read_document(const std::string& path);
/// Modules and data; of a folder all below it, a document then standing at the path of its folder.
policy::rego::Errors load(const std::vector<std::string>& paths, policy::rego::Workspace& workspace);

}  // namespace openshell::rego_program
