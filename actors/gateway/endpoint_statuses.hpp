// What a supervisor last saw at each endpoint of its sandbox's policy: which reports are taken, what they change, and when results are
// forgotten. The addresses come from the policy, never from a report. Pure. (gateway endpoint status)
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "actors/gateway/times.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {

namespace pb = openshell::v1;

inline constexpr std::size_t kMaxFailureWord = 64;       ///< bytes of code and stage
inline constexpr std::size_t kMaxFailureProvider = 253;  ///< bytes, as all that follow
inline constexpr std::size_t kMaxFailureKey = 256;
inline constexpr std::size_t kMaxFailureRequestId = 128;

/// The last report of one session that was taken.
struct EndpointCursor {
  std::uint64_t sequence = 0;
  std::string digest;  ///< SHA-256 of its bytes
};

/// True: a new report, to be applied. False: the last one again, nothing to do. Else FAILED_PRECONDITION (older) or INVALID_ARGUMENT (the
/// same number for something else).
absl::StatusOr<bool> advance(const EndpointCursor& cursor, const pb::ReportEndpointStatusRequest& request);
/// The cursor after `request` was stored.
EndpointCursor cursor_of(const pb::ReportEndpointStatusRequest& request);

/// Replaces the inventory of `status` by the report's. INVALID_ARGUMENT or FAILED_PRECONDITION leave it as it was.
absl::Status apply_endpoints(pb::SandboxStatus& status, const pb::ReportEndpointStatusRequest& request,
                             const openshell::sandbox::v1::SandboxPolicy& effective, Millis now);

/// Forgets results and keeps addresses. True when something was forgotten.
bool forget_results(pb::SandboxStatus& status);
/// The same for endpoints at which a credential is resolved, and for failures of credentials.
bool forget_credentialed(pb::SandboxStatus& status, const openshell::sandbox::v1::SandboxPolicy& effective);

}  // namespace openshell::gateway
