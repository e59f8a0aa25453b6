#include "policy/content/json_rpc.hpp"

#include <algorithm>
#include <array>

#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::array<std::string_view, 6> kMembers{"jsonrpc", "method", "id", "params", "result", "error"};

// The members of one message as they were found.
struct Members {
  JsonKind version_kind = JsonKind::none, method_kind = JsonKind::none, id = JsonKind::none, params_kind = JsonKind::none,
           result = JsonKind::none, error = JsonKind::none;
  std::string version, method;
  std::string_view params;
  bool misspelled = false;
};

bool text_or_skip(JsonReader& json, JsonKind& kind, std::string& out) {
  kind = json.peek();
  return kind == JsonKind::string ? json.string(out) : json.skip();
}

bool read_members(JsonReader& json, Members& out) {
  const auto kind_of = [&json](JsonKind& kind) {
    kind = json.peek();
    return json.skip();
  };
  return json.object([&](std::string_view key) {
    if (differs_in_case(key, kMembers)) out.misspelled = true;
    if (key == "jsonrpc") return text_or_skip(json, out.version_kind, out.version);
    if (key == "method") return text_or_skip(json, out.method_kind, out.method);
    if (key == "id") return kind_of(out.id);
    if (key == "result") return kind_of(out.result);
    if (key == "error") return kind_of(out.error);
    if (key != "params") return json.skip();
    out.params_kind = json.peek();
    return json.raw(out.params);
  });
}

bool is_id(JsonKind kind) { return kind == JsonKind::string || kind == JsonKind::number || kind == JsonKind::null; }

// Empty: `out` is filled.
std::string response_of(const Members& members, JsonRpcMessage& out) {
  if (members.result != JsonKind::none && members.error != JsonKind::none) return "JSON-RPC response includes both result and error";
  if (members.id == JsonKind::none) return "JSON-RPC response missing id";
  if (!is_id(members.id)) return "JSON-RPC response id must be string, number, or null";
  if (members.error != JsonKind::none && members.error != JsonKind::object) return "JSON-RPC response error must be an object";
  out.kind = JsonRpcMessage::Kind::response;
  out.id = members.id;
  return {};
}

std::string message_of(const Members& members, JsonRpcMessage& out) {
  if (members.misspelled) return "JSON-RPC key differs from the protocol's in case only";
  if (members.version_kind != JsonKind::string) return "missing or non-string 'jsonrpc' field";
  if (members.version != "2.0") return cat("unsupported JSON-RPC version '", members.version.substr(0, 32), "'");
  const bool answer = members.result != JsonKind::none || members.error != JsonKind::none;
  if (members.method_kind != JsonKind::none && answer) return "JSON-RPC message includes both method and result/error";
  if (answer) return response_of(members, out);
  if (members.method_kind != JsonKind::string) return "missing or non-string 'method' field";
  if (members.method.empty()) return "empty 'method' field";
  if (members.id != JsonKind::none && !is_id(members.id)) return "JSON-RPC request id must be string, number, or null";
  out.kind = members.id == JsonKind::none ? JsonRpcMessage::Kind::notification : JsonRpcMessage::Kind::request;
  out.method = members.method;
  out.id = members.id;
  out.params_kind = members.params_kind;
  out.params = members.params;
  return {};
}

}  // namespace

bool JsonRpcBody::has_response() const {
  return std::any_of(messages.begin(), messages.end(), [](const auto& message) { return message.kind == JsonRpcMessage::Kind::response; });
}

JsonRpcBody read_json_rpc(std::string_view body) {
  JsonRpcBody out;
  JsonReader json{body};
  out.batch = json.peek() == JsonKind::array;
  std::string fault;  // of the first message that has one; the rest of the text is read nevertheless
  const auto one = [&] {
    Members members;
    if (json.peek() != JsonKind::object) {
      if (fault.empty() && json.peek() != JsonKind::none) fault = "JSON-RPC message is not an object";
      return json.skip();
    }
    if (!read_members(json, members)) return false;
    if (out.messages.size() == kMaxJsonRpcBatch) {
      if (fault.empty()) fault = "batch has too many members";
      return true;
    }
    out.messages.emplace_back();
    if (auto why = message_of(members, out.messages.back()); fault.empty()) fault = std::move(why);
    return true;
  };
  const bool read = (out.batch ? json.array(one) : one()) && json.finish();
  if (!read) {
    out.error = json.error().empty() ? "invalid JSON" : std::string{json.error()};
  } else if (!fault.empty()) {
    out.error = out.batch ? cat("batch item invalid: ", fault) : fault;
  } else if (out.messages.empty()) {
    out.error = "empty batch";
  }
  return out;
}

JsonRpcContent content_without_body(const RpcRequest& request) {
  JsonRpcContent out;
  out.receive_stream = request.method == "GET" && request.accepts_event_stream;
  return out;
}

RpcContents inspect_json_rpc(const RpcRequest& request) {
  RpcContents out;
  if (request.body.empty() && request.method != "POST") {
    out.contents.push_back(content_without_body(request));
    return out;
  }
  std::string fault = json_body_fault(request.head, false);
  const auto body = read_json_rpc(request.body);
  if (fault.empty()) fault = body.error;
  if (!fault.empty()) {
    out.refusal = cat("JSON-RPC request rejected: ", fault);
  } else if (body.has_response()) {
    out.refusal = "JSON-RPC response frames are not permitted from client to server";
  } else {
    for (const auto& message : body.messages) {
      out.contents.emplace_back();
      out.contents.back().method = message.method;
    }
  }
  return out;
}

}  // namespace openshell::policy
