// Requests to an MCP server by streamable HTTP: which revision they speak, whether they have its form, and what the policy is asked about
// them. Nothing is remembered between requests. Pure function, any thread. (L7-05 to L7-07, L7-12, L7-13, L7-37 to L7-44)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/content/json_rpc.hpp"
#include "policy/content/mcp_methods.hpp"

namespace openshell::policy {

/// The longest tool name under strict_tool_names, in bytes.
inline constexpr std::size_t kMaxToolNameBytes = 128;

/// A request that no rule can allow and no audit mode lets through.
struct McpRefusal {
  int status = 400;
  std::string_view code;  ///< `invalid_mcp_request` and its like
  std::string detail;
};

struct McpInspection {
  std::optional<McpRefusal> refusal;
  std::vector<JsonRpcContent> contents;  ///< judged in this order, all have to pass; at least one, unless refused
};

/// `version_headers`: every value of MCP-Protocol-Version. `allowed`: the endpoint's mcp.versions. The revision is chosen by the header
/// alone, 2025-03-26 where there is none; one `initialize` request by itself has not agreed on a revision yet and is not asked for it.
[[nodiscard]] McpInspection inspect_mcp(const RpcRequest& request, std::span<const std::string_view> version_headers,
                                        std::span<const std::string_view> allowed, bool strict_tool_names);

[[nodiscard]] bool is_strict_tool_name(std::string_view name);

}  // namespace openshell::policy
