#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace openshell::v1 {
class PolicyChunk;
}

namespace openshell::supervisor {

/// Operations of one proposal body.
inline constexpr std::size_t kMaxProposedOperations = 32;

/// What an agent proposes in the body of `POST /v1/proposals`: one chunk an operation, every endpoint marked as proposed.
///
///   {"intent_summary": "read the weather", "operations": [{"addRule": {"ruleName": "weather", "rule": {"endpoints": [{"host": "api.test",
///    "port": 443, "protocol": "rest", "enforcement": "enforce", "rules": [{"allow": {"method": "GET", "path": "/v1/**"}}]}],
///    "binaries": [{"path": "/usr/bin/curl"}]}}}]}
///
/// Strict where it matters: an unknown key inside a rule is refused by name, since a reviewer would approve less or more than the agent
/// meant. INVALID_ARGUMENT: the detail of the answer.
absl::StatusOr<std::vector<v1::PolicyChunk>> parse_proposal_body(const std::string& body);

}  // namespace openshell::supervisor
