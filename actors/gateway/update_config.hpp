// UpdateConfig: which of its many shapes a request has, and the checks that need no record. Pure.
#pragma once

#include <absl/status/statusor.h>

#include "messages/gateway.hpp"
#include "records.pb.h"

namespace openshell::gateway {

enum class UpdateKind { policy, setting, merge };

/// Exactly one payload, and one that the scope and the caller may send. INVALID_ARGUMENT or PERMISSION_DENIED.
absl::StatusOr<UpdateKind> classify_update(const openshell::v1::UpdateConfigRequest& request, const Caller& caller);

/// Applies a batch of merge operations to a policy, all or nothing; the result is checked and in canonical form. Malformed operations are
/// INVALID_ARGUMENT, conflicts with the policy FAILED_PRECONDITION, a rule or endpoint that is not there NOT_FOUND.
absl::StatusOr<openshell::sandbox::v1::SandboxPolicy> merge_policy(const openshell::sandbox::v1::SandboxPolicy& base,
                                                                   const openshell::v1::UpdateConfigRequest& request);

}  // namespace openshell::gateway
