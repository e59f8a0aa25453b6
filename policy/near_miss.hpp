// Which rules miss a question by exactly one field. Internal to the explanation.
#pragma once

#include <string>
#include <vector>

#include "policy/explanation.hpp"

namespace openshell::policy {

struct NearRule {
  std::size_t rank = 0;  ///< place of the field in the order of checking; larger is checked later
  NearMiss near;
  int endpoint = 0;  ///< of the rule
};

/// The field that is checked last first, then by key; kMaxNearMisses at most.
[[nodiscard]] std::vector<NearRule> near_misses(const pb::SandboxPolicy& policy, const Question& question);

/// Whether `policy` compiles and allows it: `audit` is no allow.
[[nodiscard]] bool allows(const pb::SandboxPolicy& policy, const Question& question);

}  // namespace openshell::policy
