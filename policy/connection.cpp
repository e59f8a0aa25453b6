// Judging the requests of one connection.
#include <algorithm>
#include <array>

#include "policy/arbiter.hpp"
#include "policy/crowd.hpp"
#include "policy/matcher.hpp"
#include "policy/rank.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

bool blocked_addresses_equal(const Endpoint* a, const Endpoint* b) {
  static const std::vector<AddressBlock> kNone;
  return (a != nullptr ? a->allowed_ips : kNone) == (b != nullptr ? b->allowed_ips : kNone);
}

// What an endpoint of this protocol cannot be judged without.
bool lacks_content(const Request& request, const Endpoint& endpoint) {
  switch (endpoint.protocol) {
    case Protocol::graphql:
      return request.graphql == nullptr;
    case Protocol::json_rpc:
    case Protocol::mcp:
      return request.jsonrpc == nullptr;
    case Protocol::websocket:
      return endpoint.graphql_messages && request.graphql == nullptr && request.method == "WEBSOCKET_TEXT";
    default:
      return false;
  }
}

// One of four fixed texts: nothing that the caller sent stands in them.
std::string_view mcp_text(const JsonRpcContent& call, bool denied) {
  if (denied) return "MCP method or tool blocked by a deny rule; review deny_rules of the endpoint";
  if (call.classification == McpMethod::extension) {
    return "MCP extension method has no exact allow rule; review rules of the endpoint, which have to name it exactly";
  }
  if (call.tool) return "MCP tool call has no matching allow rule; review tool in the rules of the endpoint";
  return "MCP core method not permitted by policy; review rules of the endpoint";
}

// What the client and the log are told. `endpoint` is the deciding one, null where no candidate covers the path.
std::string refusal_text(const Request& request, const Endpoint* endpoint, bool denied) {
  if (request.graphql != nullptr) {
    if (!request.graphql->error.empty()) return text::cat("GraphQL request rejected: ", request.graphql->error);
    if (endpoint != nullptr && !endpoint->rules->all_registered(*request.graphql)) return "GraphQL persisted query is not registered";
    if (!request.graphql->operations.empty()) {
      return denied ? "GraphQL operation blocked by endpoint policy" : "GraphQL operation not permitted by policy";
    }
  }
  if (request.jsonrpc != nullptr && endpoint != nullptr) {
    const JsonRpcContent& call = *request.jsonrpc;
    if (call.has_response && endpoint->protocol == Protocol::json_rpc) {
      return "JSON-RPC response frames are not permitted from client to server";
    }
    const bool parsed = request.method == "POST" && !call.has_response && (!call.error || call.error->empty());
    if (parsed && endpoint->protocol == Protocol::mcp && call.classification != McpMethod::none) {
      return std::string{mcp_text(call, denied)};
    }
  }
  return text::cat(request.method, " ", request.path, denied ? " blocked by deny rule" : " not permitted by policy");
}

}  // namespace

bool decides_over(const Endpoint* a, const Endpoint* b) {
  if (a->request_rank != b->request_rank) return a->request_rank > b->request_rank;
  if (a->policy != b->policy) return a->policy < b->policy;
  return a->index < b->index;
}

std::string_view to_string(Field field) {
  constexpr std::array<std::string_view, 13> kNames{"",     "host",  "port",           "binary",         "endpoint.path", "method",
                                                    "path", "query", "operation_type", "operation_name", "fields",        "persisted_query",
                                                    "tool"};
  return kNames.at(static_cast<std::size_t>(field));
}

std::span<const Endpoint* const> Connection::endpoints() const noexcept {
  return listed_ != nullptr ? std::span<const Endpoint* const>{listed_->endpoints} : std::span<const Endpoint* const>{endpoints_};
}

// All endpoints of a matcher stand in one array in the order of deciding, so order by address is that order.
void Connection::settle() {
  if (endpoints_.empty()) return;
  if (listed_ != nullptr) {
    endpoints_.insert(endpoints_.end(), listed_->endpoints.begin(), listed_->endpoints.end());
    listed_ = nullptr;
  }
  std::sort(endpoints_.begin(), endpoints_.end());
  endpoints_.erase(std::unique(endpoints_.begin(), endpoints_.end()), endpoints_.end());
}

const Endpoint* Connection::first_inspecting() const noexcept {
  if (listed_ != nullptr) return listed_->inspecting;
  const auto found = std::find_if(endpoints_.begin(), endpoints_.end(), [](const Endpoint* e) { return e->inspects(); });
  return found == endpoints_.end() ? nullptr : *found;
}

const Endpoint* Connection::deciding_for(std::string_view canonical_path) const {
  if (listed_ != nullptr && listed_->requests) return listed_->requests->deciding(canonical_path);
  const Endpoint* best = nullptr;
  for (const Endpoint* endpoint : endpoints()) {
    if (!endpoint->carries_metadata) break;  // the plain ones come last
    if ((best == nullptr || decides_over(endpoint, best)) && endpoint->covers_path(canonical_path)) best = endpoint;
  }
  return best;
}

RequestDecision Connection::request(const Request& request) const {
  RequestDecision out;
  if (!allowed || inspection == Inspection::raw) {
    out.reason = "request denied by policy";
    return out;
  }
  if (inspection == Inspection::passthrough) {
    out.verdict = Verdict::allow;
    out.endpoint = deciding;
    return out;
  }
  out.endpoint = deciding_for(request.path);
  if (out.endpoint == nullptr) {
    out.reason = refusal_text(request, nullptr, false);
    return out;
  }
  out.protocol = out.endpoint->protocol;
  if (!out.endpoint->inspects()) {  // the path belongs to an endpoint that only passes through
    out.verdict = Verdict::allow;
    return out;
  }
  if (lacks_content(request, *out.endpoint)) {
    out.verdict = Verdict::unsupported;
    out.reason = text::cat("the content of the request is not known, which protocol ", to_string(out.protocol), " needs");
    return out;
  }
  if (arbitrated_) {
    auto answer = arbitrated_->request(request);
    const bool enforced = answer.failed || out.endpoint->enforcement == Enforcement::enforce;
    out.verdict = answer.allowed ? Verdict::allow : enforced ? Verdict::deny : Verdict::audit;
    out.reason = std::move(answer.reason);
    return out;
  }
  const bool denied = find_denial(request, out);
  if (!denied && find_allowance(request, out)) return out;
  out.verdict = out.endpoint->enforcement == Enforcement::enforce ? Verdict::deny : Verdict::audit;
  out.reason = refusal_text(request, out.endpoint, denied);
  return out;
}

RequestDecision Connection::requests(Request request, std::span<const JsonRpcContent> contents) const {
  RequestDecision out;
  if (contents.empty()) out.reason = "request denied by policy";
  for (const auto& content : contents) {
    request.jsonrpc = &content;
    out = this->request(request);
    if (out.verdict != Verdict::allow) break;
  }
  return out;
}

// A deny rule of any endpoint counts, and what a protocol refuses by itself.
bool Connection::find_denial(const Request& request, RequestDecision& out) const {
  const auto denies = [&](const Endpoint& endpoint) {
    if (!is_inspected(endpoint.protocol) || !endpoint.covers_path(request.path)) return false;
    const RuleHit hit = endpoint.rules->denying(request);
    if (!hit.hit || (hit.rule < 0 && !endpoint.inspects())) return false;
    out.rule_endpoint = &endpoint;
    out.rule = hit.rule;
    out.deny_rule = hit.rule >= 0;
    return true;
  };
  if (listed_ != nullptr && listed_->requests) return listed_->requests->first_denying(request.path, denies) != RequestIndex::npos;
  return std::any_of(endpoints().begin(), endpoints().end(), [&](const Endpoint* endpoint) { return denies(*endpoint); });
}

// Endpoints of the deciding one's protocol add up; another's rules speak another vocabulary.
bool Connection::find_allowance(const Request& request, RequestDecision& out) const {
  const auto allows = [&](const Endpoint& endpoint) {
    if (endpoint.protocol != out.protocol || !endpoint.inspects() || !endpoint.covers_path(request.path)) return false;
    const RuleHit hit = endpoint.rules->allowing(request);
    if (!hit.hit) return false;
    out.verdict = Verdict::allow;
    out.rule_endpoint = &endpoint;
    out.rule = hit.rule;
    return true;
  };
  if (listed_ != nullptr && listed_->requests) return listed_->requests->first_allowing(request.path, allows) != RequestIndex::npos;
  return std::any_of(endpoints().begin(), endpoints().end(), [&](const Endpoint* endpoint) { return allows(*endpoint); });
}

Miss Connection::miss_of(const Request& request, const RequestDecision& decision) const {
  Miss best;
  const bool refused = decision.verdict == Verdict::deny || decision.verdict == Verdict::audit;
  if (!allowed || inspection != Inspection::requests || !refused || decision.deny_rule) return best;
  const Endpoint* deciding_endpoint = decision.endpoint;
  for (const Endpoint* endpoint : endpoints()) {
    if (!endpoint->inspects()) continue;
    if (!endpoint->covers_path(request.path)) {
      if (best.endpoint == nullptr) best = {endpoint, -1, Field::endpoint_path, {}, 0};
      continue;
    }
    if (deciding_endpoint == nullptr || endpoint->protocol != deciding_endpoint->protocol) continue;
    Miss one = endpoint->rules->nearest(request);
    one.endpoint = endpoint;
    if (best.endpoint == nullptr || one.field > best.field) best = one;
  }
  return best;
}

bool Connection::may_allow_encoded_slash() const noexcept {
  return std::any_of(endpoints().begin(), endpoints().end(), [](const Endpoint* e) { return e->inspects() && e->allow_encoded_slash; });
}

const Endpoint* Connection::uninspected_credential() const noexcept {
  for (const Endpoint* endpoint : endpoints()) {
    const bool seen = endpoint->inspects() && inspection == Inspection::requests;
    if (endpoint->provider_credentialed && !endpoint->allow_uninspected_credentials && !seen) return endpoint;
  }
  return nullptr;
}

bool Connection::same_handling(const Connection& next) const {
  if (allowed != next.allowed || tls != next.tls || inspection != next.inspection) return false;
  if (exact_declared_host != next.exact_declared_host || !blocked_addresses_equal(deciding, next.deciding)) return false;
  if (inspection != Inspection::requests) return true;
  const auto handling = [](const Connection& c) {
    std::vector<std::string> out;
    for (const Endpoint* endpoint : c.endpoints()) {
      if (endpoint->carries_metadata) out.push_back(handling_of(*endpoint->source));
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  };
  return handling(*this) == handling(next);
}

}  // namespace openshell::policy
