// What a changed policy newly makes possible with credentials: the question that stands between a proposal and its automatic approval.
//
// Every fact is fixed - which program, which endpoint, which port, is it inspected, does a credential go there - so the answer is computed,
// not searched for: all paths of both policies, and their difference. Passing says nothing about a boundary check, nor the other way. Pure,
// any thread. (PP-07)
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// Combinations of rule, program, endpoint and port that one policy may have here.
inline constexpr std::size_t kMaxRiskPaths = 1'000'000;
/// Findings that a text names; the rest is counted.
inline constexpr std::size_t kMaxShownFindings = 50;

/// Where the credentials of attached providers go.
struct CredentialPlaces {
  std::vector<std::string> hosts;  ///< names and patterns of the profiles' endpoints, and of endpoints that bind a provider
  bool unbound = false;            ///< a provider without a profile: to every inspected endpoint that is named exactly
};

/// One sentence each, sorted: `credential_reach_expansion: api.test:443 via /usr/bin/curl`, `capability_expansion: PUT on api.test:443 via
/// /usr/bin/curl`, `l7_bypass_credentialed: ...`, `link_local_reach: ...`. Both policies are effective ones in canonical form.
/// RESOURCE_EXHAUSTED beyond kMaxRiskPaths.
absl::StatusOr<std::vector<std::string>> new_findings(const pb::SandboxPolicy& current, const pb::SandboxPolicy& candidate,
                                                      const CredentialPlaces& credentials);

inline constexpr const char* kNoNewFindings = "prover: no new findings";
/// kNoNewFindings, or `prover: 2 new findings` and a line for each.
[[nodiscard]] std::string describe_findings(const std::vector<std::string>& findings);

}  // namespace openshell::policy
