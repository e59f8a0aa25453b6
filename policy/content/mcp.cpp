#include "policy/content/mcp.hpp"

#include <algorithm>

#include "policy/content/mcp_params.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;
using Kind = JsonRpcMessage::Kind;

std::string_view trim_blanks(std::string_view value) {
  const auto first = value.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : value.substr(first, value.find_last_not_of(" \t") - first + 1);
}

// The revision of a request, or why it has none.
std::optional<McpRefusal> select_revision(std::span<const std::string_view> headers, std::span<const std::string_view> allowed,
                                          McpRevision& out) {
  const bool absent = headers.empty();
  if (!absent) {
    const auto value = trim_blanks(headers.front());
    if (headers.size() > 1 || value.empty()) {
      return McpRefusal{400, "invalid_mcp_protocol_version_header", "MCP-Protocol-Version must contain exactly one non-empty header value"};
    }
    const auto* known = find_mcp_revision(value);
    if (known == nullptr) {
      return McpRefusal{400, "unsupported_mcp_protocol_version", "MCP-Protocol-Version names an unsupported protocol version"};
    }
    out = *known;
  }
  const auto date = form_of(out).date;
  if (std::find(allowed.begin(), allowed.end(), date) != allowed.end()) return std::nullopt;
  return McpRefusal{403, "mcp_protocol_version_not_allowed",
                    cat("MCP protocol version ", date, " is not allowed by endpoint policy",
                        absent ? " (assumed, since the request has no MCP-Protocol-Version header)" : "")};
}

McpRefusal invalid(std::string detail) { return {400, "invalid_mcp_request", std::move(detail)}; }

bool is_standalone_initialize(const JsonRpcBody& body) {
  return !body.batch && body.messages.size() == 1 && body.messages.front().kind == Kind::request &&
         body.messages.front().method == "initialize";
}

std::optional<McpRefusal> check_batch(const JsonRpcBody& body, McpRevision revision) {
  if (!body.batch) return std::nullopt;
  if (!form_of(revision).batches) return invalid(cat("invalid MCP request: revision ", form_of(revision).date, " has no batches"));
  if (body.messages.size() > kMaxMcpBatch) return invalid(cat("invalid MCP request: a batch has at most ", kMaxMcpBatch, " members"));
  const auto responses = std::count_if(body.messages.begin(), body.messages.end(), [](const auto& m) { return m.kind == Kind::response; });
  if (responses != 0 && static_cast<std::size_t>(responses) != body.messages.size()) {
    return invalid("invalid MCP request: a batch holds either responses or requests and notifications");
  }
  const bool initialize =
      std::any_of(body.messages.begin(), body.messages.end(), [](const auto& message) { return message.method == "initialize"; });
  if (initialize) return invalid("invalid MCP request: initialize must not be part of a batch");
  return std::nullopt;
}

// One request or notification.
std::optional<McpRefusal> read_message(const JsonRpcMessage& message, McpRevision revision, bool strict_tool_names, JsonRpcContent& out) {
  const bool request = message.kind == Kind::request;
  const std::string what = request ? "invalid MCP request" : "invalid MCP notification";
  out.method = message.method;
  if (request && message.id == JsonKind::null) return invalid(cat(what, ": id must be a string or a number"));
  const auto* facts = find_mcp_method(message.method);
  if (facts == nullptr) {
    out.classification = McpMethod::extension;
    return std::nullopt;
  }
  if (!facts->from_client) return invalid(cat(what, ": method ", facts->name, " is not sent by a client"));
  if (facts->since > revision) return invalid(cat(what, ": method ", facts->name, " is not part of revision ", form_of(revision).date));
  if (facts->notification == request) {
    return invalid(cat(what, ": method ", facts->name, facts->notification ? " is a notification and has no id" : " needs an id"));
  }
  McpParams params;
  if (auto fault = read_mcp_params(*facts, revision, message.params_kind, message.params, params); !fault.empty()) {
    return invalid(cat(what, " params: ", fault));
  }
  out.classification = McpMethod::available;
  if (facts->name != "tools/call") return std::nullopt;
  if (strict_tool_names && !is_strict_tool_name(params.name)) {
    return invalid("MCP tool name must match ^[A-Za-z0-9_.-]{1,128}$ when strict_tool_names is enabled");
  }
  out.tool = params.name;
  out.params.emplace("name", params.name);
  return std::nullopt;
}

}  // namespace

bool is_strict_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

McpInspection inspect_mcp(const RpcRequest& request, std::span<const std::string_view> version_headers,
                          std::span<const std::string_view> allowed, bool strict_tool_names) {
  McpInspection out;
  const bool bodiless = request.body.empty() && request.method != "POST";
  const auto body = bodiless ? JsonRpcBody{} : read_json_rpc(request.body);
  McpRevision revision = McpRevision::v2025_03_26;
  if (body.error.empty() && is_standalone_initialize(body)) {
    revision = McpRevision::v2025_11_25;  // initialize has one form in all of them
  } else {
    out.refusal = select_revision(version_headers, allowed, revision);
  }
  if (out.refusal) return out;
  if (bodiless) {
    out.contents.push_back(content_without_body(request));
    return out;
  }
  if (auto fault = json_body_fault(request.head, false); !fault.empty()) {
    out.refusal = invalid(cat("invalid MCP request: ", fault));
  } else if (!body.error.empty()) {
    out.refusal = invalid(cat("invalid MCP request: ", body.error));
  } else {
    out.refusal = check_batch(body, revision);
  }
  if (out.refusal) return out;
  if (body.has_response()) {
    out.contents.emplace_back();
    out.contents.back().has_response = true;
    return out;
  }
  for (const auto& message : body.messages) {
    out.contents.emplace_back();
    out.refusal = read_message(message, revision, strict_tool_names, out.contents.back());
    if (out.refusal) return out;
  }
  return out;
}

}  // namespace openshell::policy
