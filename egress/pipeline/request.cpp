#include "egress/pipeline/request.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "egress/http/refusal.hpp"
#include "egress/uuid.hpp"

namespace openshell::egress {
namespace {

bool inspected(const RequestContext& context) { return context.relay.connection.inspection == policy::Inspection::requests; }

RequestRefusal bad_request(std::string text) {
  RequestRefusal out;
  out.response = http::refused(400, "invalid_http_request", text);
  out.reason = std::move(text);
  out.detail = "invalid_http_request";
  out.rule_type = "http-parser";
  out.group = "l7_parse_rejection";
  return out;
}

RequestRefusal unsupported(RequestContext& context, std::string text) {
  RequestRefusal out;
  out.denial_id = DenialId{new_uuid()};
  const auto policy = context.decision.endpoint != nullptr ? context.decision.endpoint->policy : context.relay.connection.policy;
  out.response = http::refused(403, "unsupported_l7_protocol", text, out.denial_id, policy);
  out.reason = std::move(text);
  out.detail = "unsupported_l7_protocol";
  out.rule_type = "l7";
  out.group = "l7_parse_rejection";
  out.result = EndpointResult::kPolicyDenied;
  return out;
}

/// Methods are case-sensitive (RFC 9110 9.1): `get` is not GET, though a lenient server may take it for one. Refused, so that what a rule
/// allowed is what upstream reads.
std::optional<RequestRefusal> check_method(RequestContext& context) {
  const auto& method = context.head.method;
  const bool lower = std::any_of(method.begin(), method.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (!lower) return std::nullopt;
  return bad_request("HTTP request method has lower-case letters; method names are case-sensitive");
}

/// `host`, as the authorised name is written in a Host field, with the port unless it is the scheme's own.
std::string authority_of(const Relay& relay, Port standard) {
  const bool v6 = relay.host.find(':') != std::string::npos;
  auto out = v6 ? "[" + relay.host + "]" : relay.host;
  if (relay.port != standard) out += fmt::format(":{}", relay.port.value);
  return out;
}

/// The request must be meant for the destination that was authorised, and goes there under its authorised name.
std::optional<RequestRefusal> check_authority(RequestContext& context) {
  const auto absolute = http::split_absolute_form(context.head.target);
  if (absolute && !http::equal_ignoring_case(absolute->scheme, context.tls ? "https" : "http")) {
    return bad_request("HTTP absolute-form scheme is not that of the connection");
  }
  const Port standard{static_cast<std::uint16_t>(context.tls ? 443 : 80)};
  context.names_host = absolute.has_value() || context.head.fields.has("host");
  const auto host = context.head.fields.first("host");
  if (!context.names_host) {
    // HTTP/1.0; the parser refuses it for 1.1. Upstream must not choose by itself whom it was meant for.
    context.head.fields.add("Host", authority_of(context.relay, standard));
    return std::nullopt;
  }
  const auto authority = http::parse_authority(absolute ? absolute->authority : *host);
  if (authority.ok() && authority->host == context.relay.host && authority->port.value_or(standard) == context.relay.port) {
    const auto written = absolute ? absolute->authority : *host;
    if (!host) {
      context.head.fields.add("Host", authority_of(context.relay, standard));
    } else if (const auto end = context.relay.host.size();
               !written.starts_with('[') && (!written.starts_with(context.relay.host) || (written.size() > end && written[end] == '.'))) {
      context.head.fields.set("Host", authority_of(context.relay, standard));  // other case or a final dot: the name that was authorised
    }
    return std::nullopt;
  }
  RequestRefusal out;
  out.denial_id = DenialId{new_uuid()};
  out.reason = "HTTP request authority does not match the authorized tunnel endpoint";
  out.response = http::refused_with_message(403, "request_authority_mismatch", out.reason, out.denial_id);
  out.detail = "request_authority_mismatch";
  out.rule_type = "request-authority";
  out.group = "l7_parse_rejection";
  out.severity = Severity::kHigh;
  return out;
}

std::optional<RequestRefusal> unresolved_placeholder() {
  RequestRefusal out;
  out.denial_id = DenialId{new_uuid()};
  out.reason = "Credential placeholder could not be resolved";
  out.response = http::refused_with_message(500, "credential_unavailable", out.reason, out.denial_id);
  out.detail = "credential_unavailable";
  out.rule_type = "credential-binding";
  out.group = "credentials";
  out.result = EndpointResult::kCredentialUnavailable;
  return out;
}

/// Brings path and query into the form that policy judges.
std::optional<RequestRefusal> canonicalise(RequestContext& context) {
  const auto& connection = context.relay.connection;
  const auto target = http::canonical_target(context.head.target, connection.may_allow_encoded_slash());
  if (!target.ok()) return bad_request(fmt::format("HTTP request-target rejected: {}", std::string{target.status().message()}));
  context.target = *target;
  auto shown = redact_placeholders(target->path);
  if (!shown || has_marker(*shown)) {
    context.shown_path = std::string{kRedacted};
    return unresolved_placeholder();
  }
  context.shown_path = std::move(*shown);
  if (context.target.path.find("%2F") != std::string::npos) {
    const auto* endpoint = connection.deciding_for(context.shown_path);
    if (endpoint == nullptr || !endpoint->allow_encoded_slash) {
      return bad_request(
          "HTTP request-target rejected: request-target contains an encoded '/' (%2F) which is not allowed on this endpoint");
    }
  }
  if (!target->query) return std::nullopt;
  auto query = http::parse_query(*target->query);
  if (!query.ok()) return bad_request(fmt::format("HTTP request-target rejected: {}", std::string{query.status().message()}));
  for (auto& [name, value] : *query) {
    if (has_marker(name)) return unresolved_placeholder();
    if (has_marker(value)) value = kRedacted;
  }
  context.query = std::move(*query);
  return std::nullopt;
}

/// Where the body ends. A body that two readers could see differently is no request.
std::optional<RequestRefusal> frame_body(RequestContext& context) {
  const auto framing = http::request_framing(context.head);
  if (!framing.ok()) return bad_request(std::string{framing.status().message()});
  context.framing = *framing;
  const bool body = framing->kind == http::Framing::Kind::kChunked || framing->length > 0;
  if (body && context.head.fields.has("upgrade")) return bad_request("a body on an upgrade request is not supported");
  const bool keep_alive = context.head.minor_version == 1 || context.head.fields.lists("connection", "keep-alive");
  context.close_after = !keep_alive || context.head.fields.lists("connection", "close");
  return std::nullopt;
}

/// Protocols that would leave the parsed relay. No rule can allow them.
std::optional<RequestRefusal> refuse_upgrades(RequestContext& context) {
  if (context.head.method == "CONNECT") return bad_request("HTTP request-target rejected: request-target is not a valid origin-form path");
  const auto& fields = context.head.fields;
  if (!inspected(context)) {
    context.websocket_upgrade = websocket::is_upgrade(context.head);
    return std::nullopt;
  }
  if (fields.lists("upgrade", "h2c"))
    return unsupported(context, "HTTP/2 cleartext upgrade (h2c) is not supported for L7-inspected endpoints");
  const auto* endpoint = context.relay.connection.deciding_for(context.shown_path);
  if (endpoint != nullptr && endpoint->protocol == policy::Protocol::websocket) {
    if (!websocket::is_upgrade(context.head)) return unsupported(context, "websocket endpoint requires a valid WebSocket upgrade request");
    context.websocket_upgrade = true;
    context.websocket = websocket::restrict_offer(context.head);
    return std::nullopt;
  }
  if (fields.has("upgrade") || fields.has("sec-websocket-key") || fields.has("sec-websocket-version")) {
    return unsupported(context, "protocol upgrades are not supported on this endpoint");
  }
  return std::nullopt;
}

/// Tells the log what was asked, content and all: without it a replay could only refuse.
void record_decision(const RequestContext& context, policy::Request asked) {
  const Relay& relay = context.relay;
  if (!relay.core.options.decisions) return;
  const auto* content = context.content.get();
  if (content != nullptr && content->graphql) asked.graphql = &*content->graphql;
  if (content == nullptr || content->calls.empty()) return relay.record(asked, context.decision.verdict);
  for (const auto& call : content->calls) {
    asked.jsonrpc = &call;
    const auto verdict = content->calls.size() == 1 ? context.decision.verdict : relay.connection.request(asked).verdict;
    relay.record(asked, verdict);
    if (verdict != policy::Verdict::allow) break;  // the rest of a batch was not asked
  }
}

/// Method, path, query and content against the rules of the policy.
std::optional<RequestRefusal> apply_rules(RequestContext& context) {
  Relay& relay = context.relay;
  const policy::Request asked{context.head.method, context.shown_path, context.query};
  context.decision = judge_request(relay.connection, asked, context.content.get());
  if (inspected(context)) record_decision(context, asked);
  if (context.decision.protocol == policy::Protocol::websocket && !context.websocket_upgrade) {
    return unsupported(context, "websocket endpoint requires a valid WebSocket upgrade request");
  }
  if (context.decision.forwards()) return std::nullopt;
  if (context.decision.verdict == policy::Verdict::unsupported) {
    return unsupported(context, context.decision.reason);
  }
  RequestRefusal out;
  out.denial_id = DenialId{new_uuid()};
  out.reason = context.decision.reason.empty() ? "request denied by policy" : context.decision.reason;
  const auto* rule = context.decision.endpoint;
  out.response =
      http::policy_denied({rule != nullptr ? rule->policy : relay.connection.policy, "l7", out.reason, context.head.method,
                           context.shown_path, relay.host, relay.port, relay.binary, out.denial_id, relay.generation->agent_proposals});
  out.detail = "policy_denied";
  out.rule_type = rule_type_of(context);
  out.group = "l7_policy";
  out.result = EndpointResult::kPolicyDenied;
  return out;
}

RequestRefusal requires_tls() {
  RequestRefusal out;
  out.denial_id = DenialId{new_uuid()};
  out.reason = "A credential is sent in clear text only where the policy says so; use https, or set allow_uninspected_credentials";
  out.response = http::refused_with_message(403, "credential_requires_tls", out.reason, out.denial_id);
  out.detail = "credential_requires_tls";
  out.rule_type = "credentials";
  out.group = "credentials";
  out.result = EndpointResult::kPolicyDenied;
  return out;
}

/// Puts secrets where placeholders stand, where this request may have them.
std::optional<RequestRefusal> resolve_credentials(RequestContext& context) {
  const Relay& relay = context.relay;
  const auto scope = relay.scope(context.shown_path);
  const auto* table = relay.generation->credentials.get();
  if (context.head.method == "TRACE" && table != nullptr && table->any_for(scope))
    return bad_request("TRACE is refused where credentials are injected");
  if (!context.names_host) table = nullptr;    // a request that names no host gets no secret
  context.head.target = context.target.str();  // the form that was judged is the one that goes out
  auto used = resolve_head(context.head, table, scope, std::chrono::system_clock::now());
  if (used.ok()) {
    if (used->any() && !may_carry_secret(relay, context.tls, context.decision.endpoint)) return requires_tls();
    context.used = std::move(*used);
    return std::nullopt;
  }
  auto refusal = unresolved_placeholder();
  if (std::string{used.status().message()} == kNotDeclared) refusal->detail = kNotDeclared;
  if (!absl::IsPermissionDenied(used.status())) return refusal;
  refusal->reason = "Credential is not authorized for this request endpoint";
  refusal->response = http::refused_with_message(403, "credential_endpoint_mismatch", refusal->reason, refusal->denial_id);
  refusal->detail = "credential_endpoint_mismatch";
  refusal->severity = Severity::kHigh;
  refusal->result = EndpointResult::kPolicyDenied;
  return refusal;
}

/// The head as upstream gets it.
std::optional<RequestRefusal> prepare_head(RequestContext& context) {
  http::strip_hop_fields(context.head.fields);
  if (context.websocket_upgrade) {
    context.head.fields.add("Connection", "Upgrade");
    context.head.fields.add("Upgrade", "websocket");
  }
  return std::nullopt;
}

constexpr std::array<RequestStage, 9> kRequestStages = {{
    {"method", &check_method},
    {"authority", &check_authority},
    {"target", &canonicalise},
    {"framing", &frame_body},
    {"upgrades", &refuse_upgrades},
    {"content", &read_content},
    {"rules", &apply_rules},
    {"credentials", &resolve_credentials},
    {"head", &prepare_head},
}};

/// Stages before `content`.
constexpr std::size_t kHeadStages = 5;
static_assert(kRequestStages[kHeadStages].run == &read_content);

std::optional<RequestRefusal> run_stages(std::span<const RequestStage> stages, RequestContext& context) {
  for (const auto& stage : stages) {
    if (auto refusal = stage.run(context)) return refusal;
  }
  return std::nullopt;
}

}  // namespace

bool may_carry_secret(const Relay& relay, bool tls, const policy::Endpoint* endpoint) {
  constexpr Port kHttp{80};
  if (tls || relay.port == kHttp || policy::is_host_alias(relay.host)) return true;
  if (endpoint != nullptr && endpoint->allow_uninspected_credentials) return true;
  return !relay.addresses.empty() && relay.addresses.front().is_loopback();
}

std::span<const RequestStage> request_stages() { return kRequestStages; }

std::optional<RequestRefusal> decide_head(RequestContext& context) {
  return run_stages(std::span{kRequestStages}.first(kHeadStages), context);
}

std::optional<RequestRefusal> decide_request(RequestContext& context) {
  return run_stages(std::span{kRequestStages}.subspan(kHeadStages), context);
}

RequestRefusal malformed_request(const absl::Status& why) {
  auto out = bad_request(std::string{why.message()});
  if (absl::IsResourceExhausted(why)) out.response = http::refused(431, "invalid_http_request", out.reason);
  return out;
}

}  // namespace openshell::egress
