// Rules of somebody's own, written in Rego, as an Arbiter: they decide over the endpoints of a policy in place of the compiled ones
// (NP-07). One module of package openshell.sandbox; beside it the path shim (package openshell.path), which it may import.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "policy/arbiter.hpp"

namespace openshell::policy {

inline constexpr std::size_t kMaxRulesFileBytes = 1'048'576;  ///< of the source
inline constexpr std::uint64_t kMaxRuleSteps = 1'000'000;     ///< of the evaluation of one query, counted: the same on every machine
inline constexpr std::size_t kMaxRuleElements = 65'536;       ///< of one array, set or object

/// `file` names the source in messages. INVALID_ARGUMENT: one line a fault, `FILE:ROW: CODE: TEXT`, or what must stand in it and does not.
/// The data is that of `matcher` (evaluator_data), so the arbiter serves a Matcher of the same policy and options only.
///
///   egress_authorization   asked once a connection: {action, deny_reason, matched_policy, endpoint_configs, matched_endpoints,
///                          exact_declared_endpoint_host}, exactly these; endpoint_configs are endpoints of the data
///   allow_request          asked for each request that an inspecting endpoint decides: true or false; undefined is false
///   request_deny_reason    asked behind a false: a text
///
/// Whatever goes wrong - a wrong type, a built-in that fails, a limit - denies, under audit too: `policy evaluation error: ..`.
absl::StatusOr<std::shared_ptr<const Arbiter>> load_rules_file(std::string_view source, std::string_view file, const Matcher& matcher);

/// The built-in rules as such a file, for reading and for tests; the shim's text.
[[nodiscard]] std::string_view default_rules();
[[nodiscard]] std::string_view path_shim();

}  // namespace openshell::policy
