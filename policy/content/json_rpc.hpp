// JSON-RPC 2.0 messages of one HTTP body: their shape is checked, and what a policy judges is taken out. Pure functions, any thread.
// (L7-08, L7-09)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/content/body_head.hpp"
#include "policy/content/json.hpp"
#include "policy/request_content.hpp"

namespace openshell::policy {

/// Messages of one batch.
inline constexpr std::size_t kMaxJsonRpcBatch = 1'000;

struct JsonRpcMessage {
  enum class Kind : std::uint8_t { request, notification, response } kind = Kind::request;
  std::string method;  ///< request and notification; never empty there
  JsonKind id = JsonKind::none;
  JsonKind params_kind = JsonKind::none;
  std::string_view params;  ///< its text, borrowed from the body
};

struct JsonRpcBody {
  bool batch = false;
  std::vector<JsonRpcMessage> messages;
  std::string error;  ///< why it is no JSON-RPC body; empty: it is

  [[nodiscard]] bool has_response() const;
};

/// `body` is borrowed by the result.
[[nodiscard]] JsonRpcBody read_json_rpc(std::string_view body);

/// What is known of an HTTP request before its body is understood. Borrowed for the call.
struct RpcRequest {
  std::string_view method;            ///< of HTTP
  bool accepts_event_stream = false;  ///< `Accept` lists text/event-stream
  BodyHead head;
  std::string_view body;  ///< empty: none
};

/// What the policy is asked about a request, in this order; every answer has to be yes. `refusal` not empty: refused whatever the rules
/// say.
struct RpcContents {
  std::vector<JsonRpcContent> contents;  ///< at least one, unless refused
  std::string refusal;
};

/// A request to a `json-rpc` endpoint. Its params are never looked at.
[[nodiscard]] RpcContents inspect_json_rpc(const RpcRequest& request);

/// A request without a body: the GET that opens the server's event stream, or one without content.
[[nodiscard]] JsonRpcContent content_without_body(const RpcRequest& request);

}  // namespace openshell::policy
