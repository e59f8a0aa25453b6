// All checks of a policy that do not need its text: safety of paths and identities, endpoints, request rules, middlewares, and overlapping
// endpoints that disagree. The same functions run in the command line, the gateway and the supervisor. Pure, any thread. (CA-99, CA-100,
// NET-59)
#pragma once

#include <absl/status/status.h>

#include "policy/diagnostic.hpp"
#include "policy/normalize.hpp"
#include "policy/proto_fwd.hpp"

namespace openshell::policy {

inline constexpr std::size_t kMaxFilesystemPaths = 256;                ///< read_only and read_write together.
inline constexpr std::size_t kMaxPathBytes = 4096;                     ///< One filesystem or binary path.
inline constexpr std::uint32_t kMaxBodyLimitBytes = 16'777'216;        ///< graphql_max_body_bytes, json_rpc_max_body_bytes.
inline constexpr std::size_t kMaxMiddlewares = 10;                     ///< network_middlewares.
inline constexpr std::size_t kMaxMiddlewarePatterns = 32;              ///< include and exclude of one of them.
inline constexpr std::string_view kProviderRulePrefix = "_provider_";  ///< Rule keys that only the gateway makes.

/// Pairs of endpoints of equal specificity that the overlap check compares; a policy with more is refused.
inline constexpr std::size_t kMaxOverlapPairs = 5'000'000;

/// Every violation and warning, rules in key order, endpoints in list order. Takes the policy as it was sent, before normalisation.
[[nodiscard]] Diagnostics validate(const pb::SandboxPolicy& policy);

/// Every pair of endpoints that overlap, are equally specific and want different handling of the same connection or request; each
/// diagnostic names both rules, both values and the smallest change. `policy` is one complete policy in canonical form.
[[nodiscard]] Diagnostics find_ambiguities(const pb::SandboxPolicy& policy);

/// INVALID_ARGUMENT for a rule key that only the gateway may make; part of admit() with Provenance::clear and of load_policy().
[[nodiscard]] Diagnostics check_reserved_keys(const pb::SandboxPolicy& policy);

/// The whole ingress of a policy that came as protobuf: validate, normalise in place, find ambiguities.
/// INVALID_ARGUMENT `policy contains unsafe content: ...` or FAILED_PRECONDITION `network endpoint ambiguity validation failed:\n...`; the
/// policy is then left as it was sent. What CreateSandbox and UpdateConfig call. `warnings`, where given, receives the authoring warnings.
[[nodiscard]] absl::Status admit(pb::SandboxPolicy& policy, Provenance provenance = Provenance::clear, Diagnostics* warnings = nullptr);

/// The same for a supervisor that received an effective policy: markers are kept, and the message is bounded and holds no authored value.
[[nodiscard]] absl::Status admit_effective(pb::SandboxPolicy& policy, Diagnostics* warnings = nullptr);

}  // namespace openshell::policy
