// Why a policy decides as it does: the decision, which rules miss by one field, and the smallest change that would allow it. Runs the very
// matcher of the supervisor. Pure, any thread.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "policy/judgement.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {

/// Rules that miss by one field which an explanation names at most.
inline constexpr std::size_t kMaxNearMisses = 5;

/// A rule that would allow it if this one field were otherwise: `host`, `port`, `binary`, `endpoint.path`, `protocol`, `method`, `path`,
/// `query.NAME`, `operation`, `tool` or `deny_rule`.
struct NearMiss {
  std::string rule, field;
};

struct Explanation {
  Judgement judgement;
  std::vector<NearMiss> near;   ///< the field that is checked last first, then by key
  std::string smallest_change;  ///< empty: allowed already, or nothing could allow it
};

/// INVALID_ARGUMENT where the policy does not compile. `policy` is canonical and admitted.
absl::StatusOr<Explanation> explain(const pb::SandboxPolicy& policy, const Question& question);

}  // namespace openshell::policy
