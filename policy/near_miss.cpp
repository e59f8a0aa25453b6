#include "policy/near_miss.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "policy/glob.hpp"
#include "policy/merge_parts.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

// One field of an endpoint, widened so far that it admits the question. False: there is nothing to widen.
struct Attempt {
  std::size_t rank = 0;
  std::string field;
  std::function<bool(pb::NetworkPolicyRule&, pb::NetworkEndpoint&)> widen;
};

template <class Change>
bool change_rules(pb::NetworkEndpoint& endpoint, Change change) {
  expand_access(endpoint);
  for (auto& rule : *endpoint.mutable_rules()) change(*rule.mutable_allow());
  return endpoint.rules_size() > 0;
}

std::string protocol_of(const Question::Http& request) {
  if (request.graphql) return "graphql";
  if (request.jsonrpc) return request.jsonrpc->classification == McpMethod::none ? "json-rpc" : "mcp";
  return "rest";
}

enum Rank : std::size_t { kHost, kPort, kBinary, kEndpointPath, kProtocol, kMethod, kPath, kQuery, kOperation, kTool, kDenyRule };

Attempt host_attempt(const Question& q) {
  return {kHost, "host", [&q](auto&, auto& endpoint) {
            endpoint.set_host(q.host);
            return true;
          }};
}

Attempt port_attempt(const Question& q) {
  return {kPort, "port", [&q](auto&, auto& endpoint) {
            set_ports(endpoint, {q.port});
            return true;
          }};
}

Attempt binary_attempt(const Question& q) {
  return {kBinary, "binary", [&q](auto& rule, auto&) {
            if (rule.binaries().empty() || q.binary.empty()) return false;
            rule.add_binaries()->set_path(q.binary);
            return true;
          }};
}

void add_request_attempts(const pb::NetworkEndpoint& own, const Question::Http& request, std::vector<Attempt>& out) {
  out.push_back({kEndpointPath, "endpoint.path", [](auto&, auto& endpoint) {
                   const bool given = !endpoint.path().empty();
                   endpoint.clear_path();
                   return given;
                 }});
  out.push_back({kProtocol, "protocol", [protocol = protocol_of(request)](auto&, auto& endpoint) {
                   const bool other = endpoint.protocol() != protocol;
                   endpoint.set_protocol(protocol);
                   return other;
                 }});
  out.push_back(
      {kMethod, "method", [](auto&, auto& endpoint) { return change_rules(endpoint, [](pb::L7Allow& allow) { allow.set_method("*"); }); }});
  out.push_back(
      {kPath, "path", [](auto&, auto& endpoint) { return change_rules(endpoint, [](pb::L7Allow& allow) { allow.set_path("**"); }); }});
  std::set<std::string> names;
  for (const auto& rule : own.rules()) {
    for (const auto& [name, matcher] : rule.allow().query()) names.insert(name);
  }
  for (const auto& name : names) {
    out.push_back({kQuery, cat("query.", name), [name](auto&, auto& endpoint) {
                     return change_rules(endpoint, [&](pb::L7Allow& allow) { allow.mutable_query()->erase(name); });
                   }});
  }
  if (request.graphql) {
    out.push_back({kOperation, "operation", [](auto&, auto& endpoint) {
                     return change_rules(endpoint, [](pb::L7Allow& allow) {
                       allow.set_operation_type("*");
                       allow.clear_operation_name();
                       allow.clear_fields();
                     });
                   }});
  }
  if (request.jsonrpc) {
    out.push_back(
        {kTool, "tool", [](auto&, auto& endpoint) { return change_rules(endpoint, [](pb::L7Allow& allow) { allow.clear_params(); }); }});
  }
  out.push_back({kDenyRule, "deny_rule", [](auto&, auto& endpoint) {
                   const bool given = endpoint.deny_rules_size() > 0;
                   endpoint.clear_deny_rules();
                   return given;
                 }});
}

bool names_host(const pb::NetworkEndpoint& endpoint, const std::string& host) {
  if (text::lower(endpoint.host()) == host || endpoint.host().empty()) return true;
  const auto pattern = Glob::compile(text::lower(endpoint.host()), GlobKind::host);
  return pattern.ok() && pattern->matches(host);
}

// What could be the one field that fails. Where host or port fail nothing else may.
std::vector<Attempt> attempts_for(const pb::NetworkEndpoint& endpoint, const Question& question) {
  const bool host = names_host(endpoint, question.host);
  const bool port = ports_of(endpoint).contains(question.port);
  if (!host && !port) return {};
  if (!host) return {host_attempt(question)};
  if (!port) return {port_attempt(question)};
  std::vector<Attempt> out{binary_attempt(question)};
  if (question.request) add_request_attempts(endpoint, *question.request, out);
  return out;
}

// The last field, in the order of checking, that alone keeps this rule from admitting the question.
std::optional<NearRule> miss_of(const std::string& key, const pb::NetworkPolicyRule& rule, const Question& question) {
  std::optional<NearRule> found;
  for (int i = 0; i < rule.endpoints_size(); ++i) {
    for (const auto& attempt : attempts_for(rule.endpoints(i), question)) {
      if (found && found->rank >= attempt.rank) continue;
      pb::SandboxPolicy alone;
      alone.set_version(1);
      auto& changed = (*alone.mutable_network_policies())[key];
      changed = rule;
      if (!attempt.widen(changed, *changed.mutable_endpoints(i)) || !allows(alone, question)) continue;
      found = NearRule{attempt.rank, {key, attempt.field}, i};
    }
  }
  return found;
}

}  // namespace

bool allows(const pb::SandboxPolicy& policy, const Question& question) {
  const auto matcher = Matcher::compile(policy, options_for(question.relaxed));
  return matcher.ok() && judge(**matcher, question).decision == Decision::allow;
}

std::vector<NearRule> near_misses(const pb::SandboxPolicy& policy, const Question& question) {
  std::map<std::string, const pb::NetworkPolicyRule*> ordered;
  for (const auto& [key, rule] : policy.network_policies()) ordered.emplace(key, &rule);
  std::vector<NearRule> out;
  for (const auto& [key, rule] : ordered) {
    if (auto miss = miss_of(key, *rule, question)) out.push_back(*std::move(miss));
  }
  std::stable_sort(out.begin(), out.end(), [](const NearRule& a, const NearRule& b) { return a.rank > b.rank; });
  if (out.size() > kMaxNearMisses) out.resize(kMaxNearMisses);
  return out;
}

}  // namespace openshell::policy
