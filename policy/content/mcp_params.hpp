// The params of an MCP method against the types that its schema gives them. Internal to the reader of MCP requests.
#pragma once

#include <string>
#include <string_view>

#include "policy/content/json.hpp"
#include "policy/content/mcp_methods.hpp"

namespace openshell::policy {

/// What a policy looks at.
struct McpParams {
  std::string name;  ///< of tools/call
};

/// Empty: `out` is filled. Else what is wrong, without any text of the request. `kind` none: the message has no params. `params` is valid
/// JSON.
std::string read_mcp_params(const McpMethodFacts& method, McpRevision revision, JsonKind kind, std::string_view params, McpParams& out);

}  // namespace openshell::policy
