// What the revisions of MCP define: which methods a client may send by HTTP, the types of their params, and the form of a body. Facts of
// the published schemas (modelcontextprotocol.io, one schema a revision), immutable. (L7-19, L7-37, L7-39)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace openshell::policy {

/// Messages of one batch, where a revision has batches.
inline constexpr std::size_t kMaxMcpBatch = 64;

/// In the order of their dates, so that they compare.
enum class McpRevision : std::uint8_t { v2025_03_26, v2025_06_18, v2025_11_25 };

struct McpForm {
  std::string_view date;
  bool batches = false;  ///< a body may be an array of up to kMaxMcpBatch messages of one side
};

[[nodiscard]] const McpForm& form_of(McpRevision revision);
/// The revision of this exact date; null: none is known.
[[nodiscard]] const McpRevision* find_mcp_revision(std::string_view date);

enum class McpType : std::uint8_t {
  text,
  number,
  token,  ///< a text or a number
  object,
  text_map,        ///< an object of texts
  level,           ///< a severity of RFC 5424 by name
  implementation,  ///< an object with the texts name and version
  reference,       ///< of a prompt or a resource
  argument         ///< an object with the texts name and value
};

struct McpParam {
  std::string_view name;
  McpType type = McpType::text;
  bool required = false;
};

struct McpMethodFacts {
  std::string_view name;
  bool from_client = true;    ///< false: only a server sends it
  bool notification = false;  ///< has no answer
  McpRevision since = McpRevision::v2025_03_26;
  std::span<const McpParam> params;
};

/// Null: no revision defines the method, it is an extension.
[[nodiscard]] const McpMethodFacts* find_mcp_method(std::string_view name);

/// Every method that some revision defines, for the tests that compare them with the documentation.
[[nodiscard]] std::span<const McpMethodFacts> mcp_methods();

}  // namespace openshell::policy
