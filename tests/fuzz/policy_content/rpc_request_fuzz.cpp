// The first line is the value of MCP-Protocol-Version, the rest a body: read as generic JSON-RPC and as MCP.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "policy/content/mcp.hpp"

namespace policy = openshell::policy;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto cut = text.find('\n');
  if (cut == std::string_view::npos) return 0;
  const policy::RpcRequest request{"POST", true, {}, text.substr(cut + 1)};
  const auto rpc = policy::inspect_json_rpc(request);
  if (rpc.refusal.empty() == rpc.contents.empty()) std::abort();
  for (const auto& call : rpc.contents) {
    if (!call.method || call.method->empty() || !call.params.empty()) std::abort();
  }
  const std::vector<std::string_view> all{"2025-03-26", "2025-06-18", "2025-11-25"}, header{text.substr(0, cut)};
  const auto mcp = policy::inspect_mcp(request, header, all, true);
  if (mcp.refusal ? mcp.refusal->detail.empty() || mcp.refusal->code.empty() : mcp.contents.empty()) std::abort();
  if (mcp.refusal) return 0;
  for (const auto& call : mcp.contents) {
    if (call.has_response != !call.method) std::abort();
    if (call.method && call.classification == policy::McpMethod::none) std::abort();
    if (call.tool && !policy::is_strict_tool_name(*call.tool)) std::abort();
  }
  return 0;
}
