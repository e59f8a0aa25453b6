// Stored workload templates: what a sandbox is made of, under a name. Pure: checks of a new one, its row, and what a sandbox made from it
// is.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "openshell.pb.h"
#include "storage/store.hpp"

namespace openshell::gateway {

/// Rows of the store; the payload is the public message, whose metadata is that of the columns.
inline constexpr std::string_view kWorkloadTemplateType = "sandbox_workload_template";
inline constexpr std::uint64_t kMaxTemplatesPerWorkspace = 1'000;

/// A template as a client sent it: present, named, its workload usable for a sandbox, its service level a time above zero. INVALID_ARGUMENT
/// with the field.
absl::Status check_workload_template(const openshell::v1::CreateSandboxTemplateRequest& request, std::string_view workspace);

/// The row of a checked template: a fresh id, nothing of the client's identity or times.
storage::Object to_row(const openshell::v1::SandboxWorkloadTemplate& checked, const std::string& workspace, const std::string& id);
/// The template of a row, with the store's metadata.
absl::StatusOr<openshell::v1::SandboxWorkloadTemplate> template_from_row(const storage::Object& row);

/// INVALID_ARGUMENT naming the field where a request that names a template sets what the template decides.
absl::Status check_template_use(const openshell::v1::CreateSandboxRequest& request);
/// Puts the template's workload under the request's own choices (policy, providers, command, tty, restart policy). The request then stands
/// for itself: later changes of the template do not touch the sandbox. Which version it was goes along as an annotation of ours, which no
/// caller can set and no sandbox keeps.
void expand_template(const openshell::v1::SandboxWorkloadTemplate& from, openshell::v1::CreateSandboxRequest& request);

/// Of an expanded request: name and version of its template.
openshell::v1::SandboxWorkloadTemplateProvenance provenance_of(const openshell::v1::CreateSandboxRequest& expanded);

}  // namespace openshell::gateway
