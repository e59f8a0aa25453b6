// Errors with structured details. Handlers return absl::Status; the shell turns these payloads into `grpc-status-details-bin`
// (google.rpc.Status), so that published clients read them. The canonical code of absl is the gRPC code.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace openshell::api {

/// INVALID_ARGUMENT with BadRequest{field, message} and ErrorInfo INVALID_ARGUMENT. `field` is the path as in the request:
/// "spec.environment", "workspace_scope".
absl::Status invalid_field(std::string_view field, std::string_view message);
/// ABORTED, ErrorInfo RESOURCE_VERSION_CONFLICT: `<operation> failed due to concurrent modification (current resource_version: <n or
/// unknown>)`.
absl::Status version_conflict(std::string_view operation, std::optional<std::uint64_t> current);
/// Adds ErrorInfo{reason, domain openshell.nvidia.com, metadata}.
absl::Status with_reason(absl::Status status, std::string_view reason, const std::map<std::string, std::string>& metadata = {});
/// Adds RetryInfo.
absl::Status with_retry(absl::Status status, std::chrono::milliseconds delay);
/// What a storage error becomes at the edge: lost race -> version_conflict, RESOURCE_EXHAUSTED and CANCELLED as they are, else INTERNAL
/// `<operation> failed: ...`.
absl::Status from_storage(std::string_view operation, const absl::Status& status);

/// The serialised google.rpc.Status for the trailer; empty where the status has no details.
std::string status_details(const absl::Status& status);

}  // namespace openshell::api
