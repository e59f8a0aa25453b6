// What a supervisor says about the configuration that it was given: registration, acceptance, rejection, and the repair window they move.
// Pure.
#pragma once

#include <absl/status/statusor.h>

#include "actors/gateway/lifecycle.hpp"

namespace openshell::gateway {

/// Applies one report. `current` is what GetSandboxConfig gives now. True when the record changed; a repeated report changes nothing.
/// INVALID_ARGUMENT for a malformed report, ABORTED where instance or revisions are not the current ones (the supervisor reads again),
/// FAILED_PRECONDITION once the window is over.
absl::StatusOr<bool> report_configuration(records::SandboxRecord& record, const pb::ReportSandboxConfigurationRequest& report,
                                          const openshell::sandbox::v1::GetSandboxConfigResponse& current, const Surroundings& at);

/// A committed change of the effective configuration while the window is armed: it gets a new repair window.
void note_configuration_change(records::SandboxRecord& record, const std::string& change_id, Millis now);

/// Canonical, non-nil UUID in lower case.
bool is_uuid(std::string_view text);

}  // namespace openshell::gateway
