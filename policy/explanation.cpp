#include "policy/explanation.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "openshell.pb.h"
#include "policy/blocked_destination.hpp"
#include "policy/document.hpp"
#include "policy/merge_parts.hpp"
#include "policy/near_miss.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using text::cat;

// A word of a command line that the shell hands over as it is.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-:@%+=,";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return out + "'";
}
std::string quoted_word(const std::string& word) {
  const auto out = shell_word(word);
  return out.starts_with('\'') ? out : cat("'", out, "'");
}

std::string binary_words(const pb::NetworkPolicyRule& rule) {
  std::string out;
  for (const auto& path : paths_of(rule.binaries())) out += cat(" --binary ", shell_word(path));
  return rule.binaries().empty() ? " --any-binary" : out;
}

std::string port_words(const pb::NetworkEndpoint& endpoint) {
  std::string out;
  for (const auto port : ports_of(endpoint)) out += cat(out.empty() ? "" : ",", port);
  return out;
}

bool reads_only(const std::string& method) { return method == "GET" || method == "HEAD" || method == "OPTIONS"; }

Document text_list(const std::vector<std::string>& items) {
  auto out = Document::list();
  for (const auto& item : items) out.push(Document::string(item));
  return out;
}

/// Looks for the edit. Each is tried on the whole policy before it is offered.
class Cure {
 public:
  Cure(const pb::SandboxPolicy& policy, const Question& question) : policy_{policy}, question_{question} {}

  [[nodiscard]] std::string find(const std::vector<NearRule>& misses) const {
    if (is_always_blocked(question_.host)) return {};
    for (const auto& miss : misses) {
      if (miss.near.rule.starts_with(kProviderRulePrefix) || miss.near.field == "deny_rule") continue;
      std::string text;
      if (miss.near.field == "binary") {
        text = add_binary(miss);
      } else if (question_.request && miss.near.field != "host" && miss.near.field != "port") {
        text = allow_request(miss);
      }
      if (!text.empty()) return text;
    }
    return question_.binary.empty() ? std::string{} : add_endpoint();
  }

 private:
  [[nodiscard]] bool helps(pb::SandboxPolicy changed) const { return admit(changed, Provenance::keep).ok() && allows(changed, question_); }
  [[nodiscard]] bool helps(const openshell::v1::PolicyMergeOperation& operation) const {
    MergeOperations operations;
    *operations.Add() = operation;
    auto merged = merge(policy_, operations);
    return merged.ok() && helps(std::move(merged->policy));
  }
  [[nodiscard]] const pb::NetworkPolicyRule& rule_of(const NearRule& miss) const { return policy_.network_policies().at(miss.near.rule); }

  // The rule, the narrowest that admits this request, for protocols with a vocabulary of their own.
  [[nodiscard]] std::optional<std::pair<pb::L7Allow, Document>> narrow_rule(const std::string& protocol) const {
    pb::L7Allow allow;
    auto shown = Document::mapping();
    const auto& request = *question_.request;
    if (protocol == "graphql" && request.graphql && request.graphql->operations.size() == 1) {
      const auto& operation = request.graphql->operations.front();
      if (operation.type.empty()) return std::nullopt;
      allow.set_operation_type(operation.type);
      shown.set("operation_type", Document::string(operation.type));
      if (!operation.name.empty()) {
        allow.set_operation_name(operation.name);
        shown.set("operation_name", Document::string(operation.name));
      }
      if (!operation.fields.empty()) {
        *allow.mutable_fields() = {operation.fields.begin(), operation.fields.end()};
        shown.set("fields", text_list(operation.fields));
      }
    } else if ((protocol == "json-rpc" || protocol == "mcp") && request.jsonrpc && request.jsonrpc->method) {
      allow.set_method(*request.jsonrpc->method);
      shown.set("method", Document::string(allow.method()));
      if (request.jsonrpc->tool) {
        (*allow.mutable_params())["name"].set_glob(*request.jsonrpc->tool);
        shown.set("tool", Document::string(*request.jsonrpc->tool));
      }
    } else {
      return std::nullopt;
    }
    return std::pair{allow, shown};
  }

  [[nodiscard]] std::string allow_request(const NearRule& miss) const {
    const auto& endpoint = rule_of(miss).endpoints(miss.endpoint);
    const auto protocol = text::lower(endpoint.protocol());
    if (protocol == "rest" || protocol == "websocket") return append_allow(miss, endpoint);
    const auto rule = narrow_rule(protocol);
    if (!rule || endpoint.rules_size() == 0) return {};
    auto changed = policy_;
    auto& target = *changed.mutable_network_policies()->at(miss.near.rule).mutable_endpoints(miss.endpoint);
    *target.add_rules()->mutable_allow() = rule->first;
    if (!helps(changed)) return {};
    auto fragment = Document::mapping();
    fragment.set("allow", rule->second);
    return cat("add to network_policies.", miss.near.rule, ".endpoints[", miss.endpoint, "].rules: ", write_flow_yaml(fragment));
  }

  [[nodiscard]] std::string append_allow(const NearRule& miss, const pb::NetworkEndpoint& endpoint) const {
    const auto& rule = rule_of(miss);
    openshell::v1::PolicyMergeOperation operation;
    auto& add = *operation.mutable_add_allow_rules();
    auto& target = *add.mutable_target();
    target.set_rule_name(miss.near.rule);
    target.set_host(endpoint.host());
    for (const auto port : ports_of(endpoint)) target.add_ports(port);
    const auto twins = std::count_if(rule.endpoints().begin(), rule.endpoints().end(),
                                     [&](const auto& other) { return same_text(other.host(), endpoint.host()); });
    const bool with_path = twins > 1 || !endpoint.path().empty();
    if (with_path) target.set_path(endpoint.path());
    *target.mutable_binaries() = rule.binaries();
    target.set_any_binary(rule.binaries().empty());
    auto& allow = *add.add_rules()->mutable_allow();
    allow.set_method(question_.request->method);
    allow.set_path(question_.request->path);
    if (!helps(operation)) return {};
    return cat("openshell policy update --rule-name ", shell_word(miss.near.rule), binary_words(rule),
               with_path ? cat(" --endpoint-path ", quoted_word(endpoint.path())) : "", " --add-allow ",
               quoted_word(cat(endpoint.host(), ":", port_words(endpoint), ":", allow.method(), ":", allow.path())));
  }

  [[nodiscard]] std::string add_binary(const NearRule& miss) const {
    const auto& rule = rule_of(miss);
    const auto ports = rule.endpoints_size() == 1 ? ports_of(rule.endpoints(0)) : std::set<std::uint32_t>{};
    if (ports.size() == 1 && rule.endpoints(0).path().empty()) {
      openshell::v1::PolicyMergeOperation operation;
      auto& add = *operation.mutable_add_rule();
      add.set_rule_name(miss.near.rule);
      auto& endpoint = *add.mutable_rule()->add_endpoints();
      endpoint.set_host(rule.endpoints(0).host());
      set_ports(endpoint, ports);
      add.mutable_rule()->add_binaries()->set_path(question_.binary);
      if (!endpoint.host().empty() && endpoint.host().find(':') == std::string::npos && helps(operation)) {
        return cat("openshell policy update --rule-name ", shell_word(miss.near.rule), " --add-endpoint ",
                   shell_word(cat(endpoint.host(), ":", *ports.begin())), " --binary ", shell_word(question_.binary));
      }
    }
    auto changed = policy_;
    changed.mutable_network_policies()->at(miss.near.rule).add_binaries()->set_path(question_.binary);
    if (!helps(std::move(changed))) return {};
    auto fragment = Document::mapping();
    fragment.set("path", Document::string(question_.binary));
    return cat("add to network_policies.", miss.near.rule, ".binaries: ", write_flow_yaml(fragment));
  }

  // A rule of its own: inspected and as narrow as the request, where one was asked about.
  [[nodiscard]] std::string add_endpoint() const {
    if (question_.host.find(':') != std::string::npos) return {};
    openshell::v1::PolicyMergeOperation operation;
    auto& add = *operation.mutable_add_rule();
    const auto name = fresh_name();
    add.set_rule_name(name);
    auto& endpoint = *add.mutable_rule()->add_endpoints();
    endpoint.set_host(question_.host);
    set_ports(endpoint, {question_.port});
    add.mutable_rule()->add_binaries()->set_path(question_.binary);
    const auto place = cat(question_.host, ":", question_.port);
    const auto& request = question_.request;
    const bool http = request && !request->graphql && !request->jsonrpc;
    std::string_view handling;
    if (http) {
      endpoint.set_protocol("rest");
      endpoint.set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
      if (!reads_only(request->method)) return add_narrow_endpoint(operation, name);
      endpoint.set_access(pb::NETWORK_ACCESS_PRESET_READ_ONLY);
      handling = ":read-only:rest:enforce";
    }
    if (!helps(operation)) return {};
    return cat("openshell policy update --add-endpoint ", shell_word(cat(place, handling)), " --binary ", shell_word(question_.binary));
  }

  [[nodiscard]] std::string add_narrow_endpoint(openshell::v1::PolicyMergeOperation& operation, const std::string& name) const {
    auto& endpoint = *operation.mutable_add_rule()->mutable_rule()->mutable_endpoints(0);
    auto& allow = *endpoint.add_rules()->mutable_allow();
    allow.set_method(question_.request->method);
    allow.set_path(question_.request->path);
    if (!helps(operation)) return {};
    auto one = Document::mapping();
    one.set("method", Document::string(allow.method()));
    one.set("path", Document::string(allow.path()));
    auto rule = Document::mapping();
    rule.set("allow", std::move(one));
    auto shown = Document::mapping();
    shown.set("host", Document::string(question_.host));
    shown.set("port", Document::bare(std::to_string(question_.port)));
    shown.set("protocol", Document::string("rest"));
    shown.set("enforcement", Document::string("enforce"));
    shown.set("rules", Document::list()).push(std::move(rule));
    auto fragment = Document::mapping();
    fragment.set("endpoints", Document::list()).push(std::move(shown));
    auto binary = Document::mapping();
    binary.set("path", Document::string(question_.binary));
    fragment.set("binaries", Document::list()).push(std::move(binary));
    return cat("add to network_policies.", name, ": ", write_flow_yaml(fragment));
  }

  // As the command line names a rule that is given no name.
  [[nodiscard]] std::string fresh_name() const {
    auto name = cat("allow_", question_.host, "_", question_.port);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
    const auto base = name;
    for (int i = 2; policy_.network_policies().contains(name); ++i) name = cat(base, "_", i);
    return name;
  }

  const pb::SandboxPolicy& policy_;
  const Question& question_;
};

}  // namespace

absl::StatusOr<Explanation> explain(const pb::SandboxPolicy& policy, const Question& question) {
  const auto matcher = Matcher::compile(policy, options_for(question.relaxed));
  if (!matcher.ok()) return matcher.status();
  Explanation out;
  out.judgement = judge(**matcher, question);
  if (out.judgement.decision == Decision::allow) return out;
  const auto misses = near_misses(policy, question);
  for (const auto& miss : misses) out.near.push_back(miss.near);
  out.smallest_change = Cure{policy, question}.find(misses);
  return out;
}

}  // namespace openshell::policy
