// The steps of a boundary check. Each answers, or has nothing to say. Internal to boundary.
#pragma once

#include <optional>

#include "policy/boundary/boundary.hpp"

namespace openshell::policy::boundary {

using MaybeAnswer = std::optional<Answer>;

[[nodiscard]] Answer exceeds(Counterexample example);
/// The check ended before its answer.
[[nodiscard]] Answer ended(Reason reason);

/// `name`: `candidate` or `boundary`. Takes the policy as written.
[[nodiscard]] MaybeAnswer check_shape(const pb::SandboxPolicy& policy, std::string_view name);
/// Endpoints of both whose meaning beside each other is not modelled. Canonical policies.
[[nodiscard]] MaybeAnswer check_pairs(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary, const Limits& limits);

// Canonical policies.
[[nodiscard]] MaybeAnswer check_workdir(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary);
[[nodiscard]] MaybeAnswer filesystem_exceeds(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary);
[[nodiscard]] MaybeAnswer filesystem_unresolved(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary);
[[nodiscard]] MaybeAnswer landlock_exceeds(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary);
[[nodiscard]] MaybeAnswer process_exceeds(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary);
[[nodiscard]] MaybeAnswer process_unresolved(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary);

[[nodiscard]] MaybeAnswer check_network(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary, const Limits& limits);

}  // namespace openshell::policy::boundary
