// The revisions of MCP that a policy may name. A closed list: a later one needs its own contract.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace openshell::policy {

inline constexpr std::array<std::string_view, 3> kMcpVersions{"2025-03-26", "2025-06-18", "2025-11-25"};
inline constexpr std::string_view kMcpVersionsAccepted = "accepted revisions are 2025-03-26, 2025-06-18 and 2025-11-25";

[[nodiscard]] inline bool is_mcp_version(std::string_view version) {
  return std::find(kMcpVersions.begin(), kMcpVersions.end(), version) != kMcpVersions.end();
}

}  // namespace openshell::policy
