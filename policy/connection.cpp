// Judging the requests of one connection.
#include <algorithm>

#include "policy/matcher.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

// Larger request rank decides; equals by rule key, then index.
bool decides_over(const Endpoint* a, const Endpoint* b) {
  if (a->request_rank != b->request_rank) return a->request_rank > b->request_rank;
  if (a->policy != b->policy) return a->policy < b->policy;
  return a->index < b->index;
}

bool blocked_addresses_equal(const Endpoint* a, const Endpoint* b) {
  static const std::vector<AddressBlock> kNone;
  return (a != nullptr ? a->allowed_ips : kNone) == (b != nullptr ? b->allowed_ips : kNone);
}

}  // namespace

const Endpoint* Connection::deciding_for(std::string_view canonical_path) const {
  const Endpoint* best = nullptr;
  for (const Endpoint* endpoint : endpoints_) {
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
  const auto refusal = [&](std::string_view how) { return text::cat(request.method, " ", request.path, how); };
  if (out.endpoint == nullptr) {
    out.reason = refusal(" not permitted by policy");
    return out;
  }
  out.protocol = out.endpoint->protocol;
  if (!out.endpoint->inspects()) {  // the path belongs to an endpoint that only passes through
    out.verdict = Verdict::allow;
    return out;
  }
  if (out.protocol != Protocol::rest) {
    out.verdict = Verdict::unsupported;
    out.reason = text::cat("protocol ", to_string(out.protocol), " is not inspected by this version");
    return out;
  }
  const Verdict refused = out.endpoint->enforcement == Enforcement::enforce ? Verdict::deny : Verdict::audit;
  for (const Endpoint* endpoint : endpoints_) {
    if (!is_inspected(endpoint->protocol) || !endpoint->covers_path(request.path)) continue;
    const HttpRule* rule = endpoint->rules->denying(request);
    if (rule == nullptr) continue;
    out.verdict = refused;
    out.rule_endpoint = endpoint;
    out.rule = rule->index;
    out.deny_rule = true;
    out.reason = refusal(" blocked by deny rule");
    return out;
  }
  for (const Endpoint* endpoint : endpoints_) {
    if (endpoint->protocol != out.protocol || !endpoint->inspects() || !endpoint->covers_path(request.path)) continue;
    const HttpRule* rule = endpoint->rules->allowing(request);
    if (rule == nullptr) continue;
    out.verdict = Verdict::allow;
    out.rule_endpoint = endpoint;
    out.rule = rule->index;
    return out;
  }
  out.verdict = refused;
  out.reason = refusal(" not permitted by policy");
  return out;
}

bool Connection::may_allow_encoded_slash() const noexcept {
  return std::any_of(endpoints_.begin(), endpoints_.end(), [](const Endpoint* e) { return e->inspects() && e->allow_encoded_slash; });
}

const Endpoint* Connection::uninspected_credential() const noexcept {
  for (const Endpoint* endpoint : endpoints_) {
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
    std::vector<std::string_view> out;
    for (const Endpoint* endpoint : c.endpoints_) {
      if (endpoint->carries_metadata) out.push_back(endpoint->rules->handling);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  };
  return handling(*this) == handling(next);
}

}  // namespace openshell::policy
