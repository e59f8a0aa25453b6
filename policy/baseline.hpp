// The policy of a sandbox that has none, and the filesystem paths that network access needs. Pure, any thread.
#pragma once

#include <string_view>

#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// Where the supervisor's CA lies inside the sandbox; added at runtime only, never saved.
inline constexpr std::string_view kRuntimeCaPath = "/run/openshell-supervisor-ca";

/// The restrictive default: system paths readable, /tmp and /dev/null writable, no network. Canonical form.
[[nodiscard]] pb::SandboxPolicy restrictive_default();

/// True when `path` is one that enrichment adds. Such a path may be missing in an image even under landlock hard_requirement.
[[nodiscard]] bool is_baseline_path(std::string_view path);

/// Adds the baseline paths that `policy` does not list, where it has at least one network rule. A baseline path that the user put into the
/// other list stays there; nothing is removed. Makes the filesystem section (include_workdir true) where it is absent. True when something
/// was added: the caller saves the result as a new base revision.
bool enrich_baseline(pb::SandboxPolicy& policy);

/// Adds what a running sandbox needs beyond the saved policy (the interception CA) where there is a network rule. Never saved.
void add_runtime_paths(pb::SandboxPolicy& policy);

/// Removes the rules that providers contribute (keys `_provider_*`); true when there was one.
bool strip_provider_rules(pb::SandboxPolicy& policy);

/// Marks the endpoints of `policy` as proposed by an advisor that are so in `stored`: same rule key, host, path and ports.
void keep_proposed_marks(const pb::SandboxPolicy& stored, pb::SandboxPolicy& policy);

}  // namespace openshell::policy
