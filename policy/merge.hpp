// Changes of a policy as operations: add a rule, take a binary out, add request rules to one endpoint. A batch is applied wholly or not at
// all, and never grants a pair of program and destination that its author did not write down. Pure, any thread. (B04)
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "policy/normalize.hpp"
#include "sandbox.pb.h"

namespace openshell::v1 {
class PolicyMergeOperation;
}

namespace openshell::policy {

using MergeOperations = google::protobuf::RepeatedPtrField<openshell::v1::PolicyMergeOperation>;

struct Merged {
  pb::SandboxPolicy policy;           ///< In canonical form; markers of the base are kept.
  std::vector<std::string> warnings;  ///< What was kept or widened, one sentence each.
};

/// What becomes of `advisor_proposed` on the endpoints of an added rule: cleared for a client's, kept for an approved proposal.
/// The base is validated first (FAILED_PRECONDITION `current policy is invalid; ...`), the result last.
/// INVALID_ARGUMENT: an operation that is malformed in itself. NOT_FOUND, FAILED_PRECONDITION: one that does not fit the policy.
absl::StatusOr<Merged> merge(const pb::SandboxPolicy& base, const MergeOperations& operations, Provenance incoming = Provenance::clear);

/// One rule into a policy, as the operation does it; `index` is the operation's in error texts.
absl::StatusOr<Merged> merge_rule(const pb::SandboxPolicy& base, const std::string& name, const pb::NetworkPolicyRule& rule,
                                  Provenance incoming, int index = 0);

/// Takes `binary` out of rule `name`; the last one takes the rule with it. Absent rule or path: nothing changes. FAILED_PRECONDITION for a
/// rule that holds for any binary.
absl::StatusOr<pb::SandboxPolicy> remove_binary(const pb::SandboxPolicy& base, const std::string& name, const std::string& binary,
                                                int index = 0);

/// True when every pair of program and destination of `rule`, with at least its request rules, is in effect in `policy`. Provenance does
/// not matter. False for a rule without endpoints and for anything invalid.
[[nodiscard]] bool covers(const pb::SandboxPolicy& policy, const pb::NetworkPolicyRule& rule);

}  // namespace openshell::policy
