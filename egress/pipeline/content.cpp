#include "egress/pipeline/content.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "egress/http/refusal.hpp"
#include "egress/pipeline/request.hpp"
#include "egress/uuid.hpp"
#include "policy/content/graphql.hpp"
#include "policy/content/json_rpc.hpp"
#include "policy/content/mcp.hpp"
#include "sandbox.pb.h"

namespace openshell::egress {
namespace {

using policy::Protocol;

/// Tool and method names of a batch that a log line shows.
constexpr std::size_t kShownNames = 8;
constexpr std::size_t kShownNameBytes = 128;

const policy::Endpoint* content_endpoint(const RequestContext& context) {
  const auto& connection = context.relay.connection;
  if (connection.inspection != policy::Inspection::requests) return nullptr;
  const auto* endpoint = connection.deciding_for(context.shown_path);
  return endpoint != nullptr && endpoint->inspects() ? endpoint : nullptr;
}

/// A refusal with an event and an id of its own; `response` is still to be set.
RequestRefusal refusal_of(RequestContext& context, std::string reason, std::string_view detail) {
  RequestRefusal out;
  out.denial_id = DenialId{new_uuid()};
  out.reason = std::move(reason);
  out.detail = detail;
  out.rule_type = rule_type_of(context);
  out.group = "l7_policy";
  out.result = EndpointResult::kPolicyDenied;
  return out;
}

RequestRefusal denied(RequestContext& context, std::string reason) {
  const Relay& relay = context.relay;
  auto out = refusal_of(context, std::move(reason), "policy_denied");
  out.response = http::policy_denied({context.decision.endpoint->policy, "l7", out.reason, context.head.method, context.shown_path,
                                      relay.host, relay.port, relay.binary, out.denial_id, relay.generation->agent_proposals});
  return out;
}

RequestRefusal refused_mcp(RequestContext& context, int status, std::string_view code, std::string detail) {
  auto out = refusal_of(context, std::move(detail), code);
  out.response = http::refused_l7(
      {status, code, out.reason, context.decision.endpoint->policy, "mcp", context.head.method, context.shown_path, out.denial_id});
  return out;
}

policy::BodyHead body_head(const http::RequestHead& head) {
  const auto all = [&](std::string_view name) {
    const auto values = head.fields.values(name);
    return std::vector<std::string_view>{values.begin(), values.end()};
  };
  return {all("content-type"), all("content-encoding")};
}

bool accepts_event_stream(const http::Fields& fields) {
  for (const auto value : fields.values("accept")) {
    for (const auto range : http::elements(value)) {
      if (http::equal_ignoring_case(http::trim(range.substr(0, range.find(';'))), "text/event-stream")) return true;
    }
  }
  return false;
}

std::optional<RequestRefusal> read_graphql(RequestContext& context, RequestContent& content) {
  content.graphql = policy::classify_graphql(context.head.method, context.query, body_head(context.head), context.body);
  if (content.graphql->error.empty()) return std::nullopt;
  return denied(context, fmt::format("GraphQL request rejected: {}", content.graphql->error));
}

policy::RpcRequest rpc_request(const RequestContext& context) {
  return {context.head.method, accepts_event_stream(context.head.fields), body_head(context.head), context.body};
}

std::optional<RequestRefusal> read_json_rpc(RequestContext& context, RequestContent& content) {
  auto inspected = policy::inspect_json_rpc(rpc_request(context));
  if (!inspected.refusal.empty()) return denied(context, std::move(inspected.refusal));
  content.calls = std::move(inspected.contents);
  return std::nullopt;
}

std::optional<RequestRefusal> read_mcp(RequestContext& context, RequestContent& content) {
  const auto& endpoint = *context.decision.endpoint;
  const auto& versions = endpoint.source->mcp().versions();
  const std::vector<std::string_view> allowed{versions.begin(), versions.end()};
  const auto headers = context.head.fields.values("mcp-protocol-version");
  auto inspected = policy::inspect_mcp(rpc_request(context), headers, allowed, endpoint.mcp_strict_tool_names);
  if (inspected.refusal) {
    return refused_mcp(context, inspected.refusal->status, inspected.refusal->code, std::move(inspected.refusal->detail));
  }
  content.calls = std::move(inspected.contents);
  return std::nullopt;
}

std::string shown_name(std::string_view name) {
  std::string out{name.substr(0, kShownNameBytes)};
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x21 || static_cast<unsigned char>(c) >= 0x7f || c == ',') c = '?';
  }
  return out;
}

void list_name(std::string& list, std::string_view name) {
  if (!list.empty()) list += ',';
  list += shown_name(name);
}

}  // namespace

std::optional<std::size_t> body_to_judge(const RequestContext& context) {
  if (context.framing.kind != http::Framing::Kind::kChunked && context.framing.length == 0) return std::nullopt;
  const auto* endpoint = content_endpoint(context);
  if (endpoint == nullptr || endpoint->body_limit == 0) return std::nullopt;
  return endpoint->body_limit;
}

std::optional<RequestRefusal> read_content(RequestContext& context) {
  const auto* endpoint = content_endpoint(context);
  if (endpoint == nullptr || endpoint->body_limit == 0) return std::nullopt;
  context.decision.endpoint = endpoint;
  context.decision.protocol = endpoint->protocol;
  auto content = std::make_shared<RequestContent>();
  std::optional<RequestRefusal> refusal;
  if (endpoint->protocol == Protocol::graphql) refusal = read_graphql(context, *content);
  if (endpoint->protocol == Protocol::json_rpc) refusal = read_json_rpc(context, *content);
  if (endpoint->protocol == Protocol::mcp) refusal = read_mcp(context, *content);
  context.content = std::move(content);
  return refusal;
}

RequestRefusal body_too_large(RequestContext& context, std::size_t limit) {
  const auto* endpoint = content_endpoint(context);
  if (endpoint == nullptr)
    return malformed_request(absl::ResourceExhaustedError("request body exceeds its limit"));  // another policy by now
  context.decision.endpoint = endpoint;
  context.decision.protocol = endpoint->protocol;
  auto text = fmt::format("request body exceeds the endpoint's limit of {} bytes", limit);
  if (context.decision.protocol == Protocol::mcp) return refused_mcp(context, 400, "invalid_mcp_request", std::move(text));
  const std::string_view code = context.decision.protocol == Protocol::graphql ? "invalid_graphql_request" : "invalid_jsonrpc_request";
  auto out = refusal_of(context, std::move(text), code);
  out.response = http::refused(400, code, out.reason, out.denial_id, context.decision.endpoint->policy);
  return out;
}

std::string_view rule_type_of(const RequestContext& context) {
  switch (context.decision.protocol) {
    case Protocol::graphql:
      return "l7-graphql";
    case Protocol::json_rpc:
      return "l7-jsonrpc";
    case Protocol::mcp:
      return "l7-mcp";
    case Protocol::websocket:
      return "l7-websocket";
    default:
      return "l7";
  }
}

std::string content_log_line(const RequestContext& context, std::string_view decision, std::string_view reason) {
  const Relay& relay = context.relay;
  const auto protocol = context.decision.protocol;
  if (protocol != Protocol::json_rpc && protocol != Protocol::mcp) {
    return fmt::format("{} {} {} {}:{}{} reason={}", protocol == Protocol::graphql ? "GRAPHQL_L7_REQUEST" : "L7_REQUEST", decision,
                       context.head.method, relay.host, relay.port.value, context.shown_path, reason);
  }
  std::string methods, tools;
  std::size_t shown = 0;
  for (const auto& call : context.content ? context.content->calls : std::vector<policy::JsonRpcContent>{}) {
    if (++shown > kShownNames) {
      methods += ",...";
      break;
    }
    if (call.method) list_name(methods, *call.method);
    if (call.tool) list_name(tools, *call.tool);
  }
  return fmt::format("JSONRPC_L7_REQUEST decision={} rule_methods={} tools={} http_method={} endpoint={}:{}{} policy_version={} reason={}",
                     decision, methods, tools, context.head.method, relay.host, relay.port.value, context.shown_path,
                     relay.generation ? relay.generation->number : 0, reason);
}

}  // namespace openshell::egress
