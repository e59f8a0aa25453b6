// Requests whose meaning stands in their body: GraphQL, JSON-RPC and MCP. How much of the body has to be read before the request can be
// judged, what it then asks, and the refusals that no rule and no audit mode can lift. No I/O.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/request_content.hpp"

namespace openshell::egress {

struct RequestContext;
struct RequestRefusal;

/// What one request holds, kept while its response is outstanding, so that a new generation can judge it again.
struct RequestContent {
  std::optional<policy::GraphqlContent> graphql;
  std::vector<policy::JsonRpcContent> calls;  ///< each is judged
};

/// Bytes of the body that are read before the rules run; nullopt: the body passes unread. The head's stages have run.
std::optional<std::size_t> body_to_judge(const RequestContext& context);

/// The body is in `context.body`: takes its content out of it. A refusal holds under audit too.
std::optional<RequestRefusal> read_content(RequestContext& context);

/// For a body that is longer than the endpoint's limit, or cut or malformed.
RequestRefusal body_too_large(RequestContext& context, std::size_t limit);

/// The kind of rule and the name of the log line of the endpoint's protocol: `l7-graphql`, `GRAPHQL_L7_REQUEST`.
std::string_view rule_type_of(const RequestContext& context);
/// The whole log line of a judged request, without query, body, params values or control characters.
std::string content_log_line(const RequestContext& context, std::string_view decision, std::string_view reason);

}  // namespace openshell::egress
