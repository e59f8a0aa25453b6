// How one HTTP request of an inspected connection is decided and made ready: a list of small stages, each of which passes or refuses.
// Nothing waits between the first stage and the write that follows the last, so one generation and one set of credentials serve them all.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "egress/credentials/rewrite.hpp"
#include "egress/http/body.hpp"
#include "egress/http/head.hpp"
#include "egress/http/target.hpp"
#include "egress/pipeline/content.hpp"
#include "egress/relay/relay.hpp"
#include "policy/matcher.hpp"

namespace openshell::egress {

struct RequestContext {
  Relay& relay;
  bool tls = false;
  http::RequestHead head;                     ///< as parsed; becomes what upstream gets
  http::Target target;                        ///< canonical
  std::string shown_path;                     ///< the same with placeholders redacted: for policy and logs
  std::vector<policy::QueryParameter> query;  ///< decoded; values with placeholders redacted
  http::Framing framing;
  policy::RequestDecision decision;
  bool websocket_upgrade = false;  ///< passthrough only
  bool names_host = false;         ///< the client said whom it means (Host or absolute form)
  bool close_after = false;        ///< the client wants no further exchange
  UsedCredentials used;
  std::string body;                               ///< where body_to_judge asked for it: whole, without chunks
  std::shared_ptr<const RequestContent> content;  ///< graphql, json-rpc and mcp
};

/// A request that is answered here and goes nowhere. The connection ends with the answer.
struct RequestRefusal {
  std::string response;
  std::string reason;
  std::string_view detail;  ///< status_detail
  std::string_view rule_type;
  std::string_view group;  ///< activity count
  Severity severity = Severity::kMedium;
  DenialId denial_id;  ///< empty: malformed, not denied
  std::optional<EndpointResult> result;
};

struct RequestStage {
  std::string_view name;
  std::optional<RequestRefusal> (*run)(RequestContext&);
};

/// The stages in their order.
std::span<const RequestStage> request_stages();

/// The stages that need the head alone. nullopt: go on with the body, if body_to_judge asks for it, and decide_request.
std::optional<RequestRefusal> decide_head(RequestContext& context);
/// The other stages. nullopt: `context.head` may be written upstream, now.
std::optional<RequestRefusal> decide_request(RequestContext& context);

/// For a head that does not parse.
RequestRefusal malformed_request(const absl::Status& why);

/// A WebSocket opening handshake, every required field present and well-formed (RFC 6455 section 4.2.1).
bool is_websocket_upgrade(const http::RequestHead& head);

}  // namespace openshell::egress
