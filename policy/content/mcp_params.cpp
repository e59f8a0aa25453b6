#include "policy/content/mcp_params.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "policy/content/body_head.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

// An object whose listed members have to be texts; others are free.
bool texts(JsonReader& json, std::span<const std::string_view> required) {
  std::vector<bool> seen(required.size(), false);
  const bool read = json.peek() == JsonKind::object && json.object([&](std::string_view key) {
    if (differs_in_case(key, required)) return false;
    const auto found = std::find(required.begin(), required.end(), key);
    if (found == required.end()) return json.skip();
    seen[static_cast<std::size_t>(found - required.begin())] = true;
    return json.peek() == JsonKind::string && json.skip();
  });
  return read && std::find(seen.begin(), seen.end(), false) == seen.end();
}

bool reference(std::string_view value) {
  constexpr std::array<std::string_view, 1> kType{"type"};
  std::string type;
  JsonReader first{value};
  const bool typed = first.peek() == JsonKind::object && first.object([&](std::string_view key) {
    return key == "type" && first.peek() == JsonKind::string ? first.string(type) : !differs_in_case(key, kType) && first.skip();
  });
  if (!typed) return false;
  constexpr std::array<std::string_view, 1> kPrompt{"name"}, kResource{"uri"};
  JsonReader second{value};
  if (type == "ref/prompt") return texts(second, kPrompt);
  return type == "ref/resource" && texts(second, kResource);
}

bool text_map(JsonReader& json) {
  return json.peek() == JsonKind::object &&
         json.object([&json](std::string_view) { return json.peek() == JsonKind::string && json.skip(); });
}

bool is_level(std::string_view value) {
  constexpr std::array<std::string_view, 8> kLevels{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};
  return std::find(kLevels.begin(), kLevels.end(), value) != kLevels.end();
}

// Reads one value; false where it is not of the type.
bool has_type(JsonReader& json, McpType type) {
  constexpr std::array<std::string_view, 2> kImplementation{"name", "version"}, kArgument{"name", "value"};
  const auto kind = json.peek();
  switch (type) {
    case McpType::text:
      return kind == JsonKind::string && json.skip();
    case McpType::number:
      return kind == JsonKind::number && json.skip();
    case McpType::token:
      return (kind == JsonKind::string || kind == JsonKind::number) && json.skip();
    case McpType::object:
      return kind == JsonKind::object && json.skip();
    case McpType::text_map:
      return text_map(json);
    case McpType::level: {
      std::string level;
      return kind == JsonKind::string && json.string(level) && is_level(level);
    }
    case McpType::implementation:
      return texts(json, kImplementation);
    case McpType::argument:
      return texts(json, kArgument);
    case McpType::reference: {
      std::string_view value;
      return kind == JsonKind::object && json.raw(value) && reference(value);
    }
  }
  return false;
}

bool meta(JsonReader& json) {
  return json.peek() == JsonKind::object && json.object([&json](std::string_view key) {
    if (key != "progressToken") return json.skip();
    return has_type(json, McpType::token);
  });
}

}  // namespace

std::string read_mcp_params(const McpMethodFacts& method, McpRevision revision, JsonKind kind, std::string_view params, McpParams& out) {
  // The last revision made the id of a cancelled request optional, since tasks are cancelled otherwise.
  const bool needs_request_id = method.name == "notifications/cancelled" && revision < McpRevision::v2025_11_25;
  const auto required = [&](const McpParam& param) { return param.required || (needs_request_id && param.name == "requestId"); };
  if (kind == JsonKind::none) {
    const auto missing = std::find_if(method.params.begin(), method.params.end(), required);
    return missing == method.params.end() ? std::string{} : cat("missing ", missing->name);
  }
  if (kind != JsonKind::object) return "params must be an object";
  std::vector<std::string_view> names;
  for (const auto& param : method.params) names.push_back(param.name);
  std::vector<std::string_view> seen;
  std::string fault;
  JsonReader json{params};
  const bool read = json.object([&](std::string_view key) {
    if (differs_in_case(key, names)) {
      fault = "a key differs from the schema's in case only";
      return false;
    }
    if (key == "_meta") {
      if (!meta(json)) fault = "_meta is not of its type";
      return fault.empty();
    }
    const auto found = std::find_if(method.params.begin(), method.params.end(), [&](const McpParam& param) { return param.name == key; });
    if (found == method.params.end()) return json.skip();
    seen.push_back(found->name);
    const bool tool_name = method.name == "tools/call" && key == "name" && json.peek() == JsonKind::string;
    if (tool_name ? !json.string(out.name) : !has_type(json, found->type)) fault = cat(found->name, " is not of its type");
    return fault.empty();
  });
  if (!fault.empty()) return fault;
  if (!read) return "params are malformed";
  for (const auto& param : method.params) {
    if (required(param) && std::find(seen.begin(), seen.end(), param.name) == seen.end()) return cat("missing ", param.name);
  }
  return {};
}

}  // namespace openshell::policy
