// The compiled request rules of one endpoint. Internal to the matcher.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/glob.hpp"
#include "policy/matcher.hpp"

namespace openshell::policy {

struct QueryCondition {
  std::string name;
  std::vector<Glob> globs;  ///< One of them has to match.
};

/// A rule over method, path and query. Access presets become such rules.
struct HttpRule {
  int index = 0;  ///< In `rules`, in the preset's order, or in `deny_rules`.
  bool any_method = false;
  std::string method;  ///< Upper case.
  Glob path;
  std::vector<QueryCondition> query;
};

struct RuleSet {
  Glob path;  ///< The endpoint's own path selector.
  std::vector<HttpRule> allow;
  std::vector<HttpRule> deny;
  std::string handling;  ///< The endpoint without its rules, for comparing across generations.

  [[nodiscard]] const HttpRule* allowing(const Request& request) const;
  [[nodiscard]] const HttpRule* denying(const Request& request) const;
};

/// Compiles the rules of an endpoint in canonical form. INVALID_ARGUMENT names the pattern.
absl::StatusOr<RuleSet> compile_rules(const pb::NetworkEndpoint& endpoint, Protocol protocol);

/// The protocol of an endpoint, any case; nullopt: not a known one.
std::optional<Protocol> parse_protocol(std::string_view text);

}  // namespace openshell::policy
