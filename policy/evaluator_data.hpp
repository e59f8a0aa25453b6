// The policy as the document that rules are evaluated over: presets written out as rules, ranks of the endpoints, symlink targets of
// binaries. A second engine that is given this and an input of evaluator_input.hpp has to answer as the compiled matcher does. Pure, any
// thread. (BIN-26)
//
// Top level: filesystem_policy, landlock, process, network_policies {key: {name, endpoints[], binaries[]}}, network_middlewares, runtime
// {require_binary_identity}. An endpoint: host, ports[], _conn_rank and _rank (larger is more specific; the first orders a connection's
// candidates, the second a request's), and what differs from its default in the spelling of YAML; `rules` with all five texts of an allow,
// deny_rules with what is there; matchers as {glob} or {any}. Path patterns are spelled as paths are compared.
#pragma once

#include <string>

#include "policy/matcher.hpp"

namespace openshell::policy {

/// JSON; `pretty` for people.
[[nodiscard]] std::string evaluator_data(const Matcher& matcher, bool pretty = false);

}  // namespace openshell::policy
