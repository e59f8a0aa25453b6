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
#include "egress/websocket/handshake.hpp"
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
  bool websocket_upgrade = false;             ///< a 101 may follow
  std::optional<websocket::Offer> websocket;  ///< of an upgrade whose messages will be judged
  bool names_host = false;                    ///< the client said whom it means (Host or absolute form)
  bool close_after = false;                   ///< the client wants no further exchange
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

/// A secret leaves this host only inside TLS: an agent that speaks plain HTTP to a port that expects TLS would else put it on the wire for
/// all to read, whatever upstream answers. What stays on the host is another matter, and so is an endpoint whose policy says that it is
/// plain: by its port, which is that of http, or by `allow_uninspected_credentials`.
bool may_carry_secret(const Relay& relay, bool tls, const policy::Endpoint* endpoint);

/// For a head that does not parse.
RequestRefusal malformed_request(const absl::Status& why);

}  // namespace openshell::egress
