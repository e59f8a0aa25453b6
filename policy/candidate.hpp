// From a proposed rule to the policy it would make. A proposal that was made mechanically says host and port only; where the policy already
// has one contract for that place, the proposal takes it over, so that approving a new program never opens a second, laxer way. Pure, any
// thread. (PP-13)
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "policy/proto_fwd.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {

struct Candidate {
  std::string rule_name;       ///< The rule of the base policy that holds the proposal: a fresh name, or one that has that very endpoint.
  pb::NetworkPolicyRule rule;  ///< What is added.
  pb::SandboxPolicy base;      ///< The base policy afterwards, canonical.
};

/// `effective`: the base with what providers contribute. Errors are sentences for the person who decides: `candidate canonicalization
/// failed:
/// ...` (mechanical proposals only), `merge failed: ...`.
absl::StatusOr<Candidate> make_candidate(const pb::SandboxPolicy& base, const pb::SandboxPolicy& effective, const std::string& rule_name,
                                         const pb::NetworkPolicyRule& proposed, bool mechanical);

/// Why an effective policy with the proposal may not stand: faults and ambiguities, one line. OK: it may.
absl::Status check_candidate(const pb::SandboxPolicy& effective);

/// What stands for a proposal in its review token: the rule's canonical bytes.
std::string rule_bytes(const std::string& name, const pb::NetworkPolicyRule& rule);

}  // namespace openshell::policy
