#include "policy/explanation.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "openshell.pb.h"
#include "policy/blocked_destination.hpp"
#include "policy/merge_parts.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using text::cat;

MatcherOptions options_of(const Question& question) {
  MatcherOptions options;
  options.require_binary_identity = !question.relaxed;
  return options;
}

bool allows(const pb::SandboxPolicy& policy, const Question& question) {
  const auto matcher = Matcher::compile(policy, options_of(question));
  return matcher.ok() && judge(**matcher, question).decision == Decision::allow;
}

void name_endpoint(Judgement& out, const Endpoint* endpoint) {
  if (endpoint == nullptr) return;
  out.rule = endpoint->policy;
  out.endpoint = endpoint->index;
  const auto& protocol = endpoint->source->protocol();
  out.handling = protocol.empty() ? "L4" : cat(protocol, ", ", endpoint->enforcement == Enforcement::enforce ? "enforce" : "audit");
}

// One field of an endpoint, widened so far that it admits the question; false where it is no obstacle that can be widened.
struct Widening {
  std::string_view field;
  std::function<bool(pb::NetworkPolicyRule&, pb::NetworkEndpoint&, const Question&)> apply;
};

template <class Change>
bool change_rules(pb::NetworkEndpoint& endpoint, Change change) {
  expand_access(endpoint);
  for (auto& rule : *endpoint.mutable_rules()) change(*rule.mutable_allow());
  return endpoint.rules_size() > 0;
}

// In the order in which the fields are checked.
const std::array<Widening, 8>& widenings() {
  static const std::array<Widening, 8> kAll{{
      {"host",
       [](auto&, auto& endpoint, const Question& q) {
         endpoint.set_host(q.host);
         return true;
       }},
      {"port",
       [](auto&, auto& endpoint, const Question& q) {
         set_ports(endpoint, {q.port});
         return true;
       }},
      {"binary",
       [](auto& rule, auto&, const Question& q) {
         if (rule.binaries().empty() || q.binary.empty()) return false;
         rule.add_binaries()->set_path(q.binary);
         return true;
       }},
      {"endpoint.path",
       [](auto&, auto& endpoint, const Question& q) {
         const bool given = q.request && !endpoint.path().empty();
         endpoint.clear_path();
         return given;
       }},
      {"method", [](auto&, auto& endpoint,
                    const Question& q) { return q.request && change_rules(endpoint, [](pb::L7Allow& allow) { allow.set_method("*"); }); }},
      {"path", [](auto&, auto& endpoint,
                  const Question& q) { return q.request && change_rules(endpoint, [](pb::L7Allow& allow) { allow.set_path("**"); }); }},
      {"query", [](auto&, auto& endpoint,
                   const Question& q) { return q.request && change_rules(endpoint, [](pb::L7Allow& allow) { allow.clear_query(); }); }},
      {"deny_rule",
       [](auto&, auto& endpoint, const Question& q) {
         endpoint.clear_deny_rules();
         return q.request.has_value();
       }},
  }};
  return kAll;
}

std::string query_name(const pb::NetworkEndpoint& endpoint) {
  for (const auto& rule : endpoint.rules()) {
    for (const auto& [name, matcher] : rule.allow().query()) return cat("query.", name);
  }
  return "query";
}

struct Miss {
  std::size_t rank = 0;
  NearMiss near;
  int endpoint = 0;
};

// The last field, in the order of checking, that alone keeps this rule from admitting the question.
std::optional<Miss> miss_of(const std::string& key, const pb::NetworkPolicyRule& rule, const Question& question) {
  std::optional<Miss> found;
  for (int i = 0; i < rule.endpoints_size(); ++i) {
    for (std::size_t rank = 0; rank < widenings().size(); ++rank) {
      if (found && found->rank >= rank) continue;
      pb::SandboxPolicy alone;
      alone.set_version(1);
      auto& changed = (*alone.mutable_network_policies())[key];
      changed = rule;
      if (!widenings().at(rank).apply(changed, *changed.mutable_endpoints(i), question) || !allows(alone, question)) continue;
      const auto field = widenings().at(rank).field;
      found = Miss{rank, {key, field == "query" ? query_name(rule.endpoints(i)) : std::string{field}}, i};
    }
  }
  return found;
}

std::string binary_words(const pb::NetworkPolicyRule& rule) {
  std::string out;
  for (const auto& path : paths_of(rule.binaries())) out += cat(" --binary ", path);
  return rule.binaries().empty() ? " --any-binary" : out;
}

class Cure {
 public:
  Cure(const pb::SandboxPolicy& policy, const Question& question) : policy_{policy}, question_{question} {}

  // The first edit that, applied to the whole policy, leads to an allowed answer.
  std::string find(const std::vector<Miss>& misses) const {
    if (is_always_blocked(question_.host)) return {};
    for (const auto& miss : misses) {
      if (miss.near.rule.starts_with(kProviderRulePrefix)) continue;
      std::string text;
      if (miss.near.field == "method" || miss.near.field == "path") text = allow_request(miss);
      if (miss.near.field == "binary") text = add_binary(miss);
      if (!text.empty()) return text;
    }
    return question_.binary.empty() ? std::string{} : add_endpoint();
  }

 private:
  [[nodiscard]] bool helps(const openshell::v1::PolicyMergeOperation& operation) const {
    MergeOperations operations;
    *operations.Add() = operation;
    auto merged = merge(policy_, operations);
    return merged.ok() && admit(merged->policy, Provenance::keep).ok() && allows(merged->policy, question_);
  }

  [[nodiscard]] std::string allow_request(const Miss& miss) const {
    const auto& rule = policy_.network_policies().at(miss.near.rule);
    const auto& endpoint = rule.endpoints(miss.endpoint);
    openshell::v1::PolicyMergeOperation operation;
    auto& add = *operation.mutable_add_allow_rules();
    auto& target = *add.mutable_target();
    target.set_rule_name(miss.near.rule);
    target.set_host(endpoint.host());
    std::string ports;
    for (const auto port : ports_of(endpoint)) {
      target.add_ports(port);
      ports += cat(ports.empty() ? "" : ",", port);
    }
    target.set_path(endpoint.path());
    *target.mutable_binaries() = rule.binaries();
    target.set_any_binary(rule.binaries().empty());
    auto& allow = *add.add_rules()->mutable_allow();
    allow.set_method(question_.request->method);
    allow.set_path(question_.request->path);
    if (!helps(operation)) return {};
    return cat("openshell policy update --rule-name ", miss.near.rule, binary_words(rule),
               endpoint.path().empty() ? "" : cat(" --endpoint-path '", endpoint.path(), "'"), " --add-allow '", endpoint.host(), ":",
               ports, ":", allow.method(), ":", allow.path(), "'");
  }

  [[nodiscard]] std::string add_binary(const Miss& miss) const {
    auto changed = policy_;
    changed.mutable_network_policies()->at(miss.near.rule).add_binaries()->set_path(question_.binary);
    if (!admit(changed, Provenance::keep).ok() || !allows(changed, question_)) return {};
    return cat("add to network_policies.", miss.near.rule, ".binaries: {path: ", question_.binary, "}");
  }

  [[nodiscard]] std::string add_endpoint() const {
    openshell::v1::PolicyMergeOperation operation;
    auto& add = *operation.mutable_add_rule();
    add.set_rule_name("openshell_explain");
    auto& endpoint = *add.mutable_rule()->add_endpoints();
    endpoint.set_host(question_.host);
    set_ports(endpoint, {question_.port});
    add.mutable_rule()->add_binaries()->set_path(question_.binary);
    if (question_.host.find(':') != std::string::npos || !helps(operation)) return {};
    return cat("openshell policy update --add-endpoint ", question_.host, ":", question_.port, " --binary ", question_.binary);
  }

  const pb::SandboxPolicy& policy_;
  const Question& question_;
};

}  // namespace

std::string_view to_string(Decision decision) {
  switch (decision) {
    case Decision::allow:
      return "allow";
    case Decision::audit:
      return "audit";
    default:
      return "deny";
  }
}

Judgement judge(const Matcher& matcher, const Question& question) {
  const auto connection =
      matcher.connect({question.host, question.port, {question.relaxed ? std::string_view{} : question.binary, question.ancestors, {}}});
  Judgement out;
  if (!connection.allowed) {
    out.reason = connection.reason;
    return out;
  }
  if (!question.request || connection.inspection != Inspection::requests) {
    out.decision = Decision::allow;
    name_endpoint(out, connection.deciding != nullptr   ? connection.deciding
                       : connection.endpoints().empty() ? nullptr
                                                        : connection.endpoints().front());
    return out;
  }
  const auto decided = connection.request({question.request->method, question.request->path, question.request->query});
  out.decision = decided.verdict == Verdict::allow ? Decision::allow : decided.verdict == Verdict::audit ? Decision::audit : Decision::deny;
  out.reason = decided.reason;
  name_endpoint(out, decided.rule_endpoint != nullptr ? decided.rule_endpoint : decided.endpoint);
  return out;
}

absl::StatusOr<Explanation> explain(const pb::SandboxPolicy& policy, const Question& question) {
  const auto matcher = Matcher::compile(policy, options_of(question));
  if (!matcher.ok()) return matcher.status();
  Explanation out;
  out.judgement = judge(**matcher, question);
  if (out.judgement.decision == Decision::allow) return out;
  std::vector<Miss> misses;
  std::map<std::string, const pb::NetworkPolicyRule*> ordered;
  for (const auto& [key, rule] : policy.network_policies()) ordered.emplace(key, &rule);
  for (const auto& [key, rule] : ordered) {
    if (auto miss = miss_of(key, *rule, question)) misses.push_back(*std::move(miss));
  }
  std::stable_sort(misses.begin(), misses.end(), [](const Miss& a, const Miss& b) { return a.rank > b.rank; });
  if (misses.size() > kMaxNearMisses) misses.resize(kMaxNearMisses);
  for (const auto& miss : misses) out.near.push_back(miss.near);
  out.smallest_change = Cure{policy, question}.find(misses);
  return out;
}

}  // namespace openshell::policy
