// Rules over what a request holds: GraphQL operations, JSON-RPC and MCP calls.
#include <algorithm>
#include <array>

#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::string_view kToolsCall = "tools/call";

bool one_matches(const std::vector<Glob>& globs, std::string_view text) {
  return std::any_of(globs.begin(), globs.end(), [text](const Glob& glob) { return glob.matches(text); });
}

bool equal_ignoring_case(std::string_view value, std::string_view lower) {
  return value.size() == lower.size() && std::equal(value.begin(), value.end(), lower.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
         });
}

absl::StatusOr<std::vector<Glob>> compile_all(const std::vector<std::string>& patterns, std::string_view where) {
  std::vector<Glob> out;
  for (const auto& pattern : patterns) {
    auto glob = compile_glob(pattern, GlobKind::dotted, where);
    if (!glob.ok()) return glob.status();
    out.push_back(*std::move(glob));
  }
  return out;
}

template <class Source>
absl::StatusOr<OperationRule> compile_operation(const Source& source, int index, std::string_view where) {
  OperationRule rule;
  rule.index = index;
  rule.any_type = source.operation_type() == "*";
  rule.type = text::lower(source.operation_type());
  rule.any_name = source.operation_name().empty();
  auto name = compile_glob(source.operation_name(), GlobKind::dotted, where);
  if (!name.ok()) return name.status();
  rule.name = *std::move(name);
  auto fields = compile_all({source.fields().begin(), source.fields().end()}, where);
  if (!fields.ok()) return fields.status();
  rule.fields = *std::move(fields);
  return rule;
}

void expand_preset(const pb::NetworkEndpoint& endpoint, std::vector<OperationRule>& rules) {
  for (const auto type : preset_words(endpoint, Protocol::graphql)) {
    OperationRule rule;
    rule.index = static_cast<int>(rules.size());
    rule.any_type = type == "*";
    rule.type = type;
    rule.any_name = true;
    rules.push_back(std::move(rule));
  }
}

// The method a rule means: with all core methods allowed a rule may leave it out.
template <class Source>
std::string method_of(const Source& source, bool selects_tool, const RuleSet& set) {
  if (!source.method().empty() || !set.core_methods) return source.method();
  return selects_tool ? std::string{kToolsCall} : "*";
}

template <class Source>
absl::StatusOr<CallRule> compile_call(const Source& source, int index, const RuleSet& set, std::string_view where) {
  CallRule rule;
  rule.index = index;
  const auto tool = source.params().find("name");
  rule.selects_tool = tool != source.params().end();
  if (rule.selects_tool) {
    auto tools = compile_all(patterns_of(tool->second), where);
    if (!tools.ok()) return tools.status();
    rule.tools = *std::move(tools);
  }
  rule.method = method_of(source, rule.selects_tool, set);
  rule.any_method = rule.method == "*";
  if (set.protocol == Protocol::mcp) {
    auto glob = compile_glob(rule.method, GlobKind::dotted, where);
    if (!glob.ok()) return glob.status();
    rule.method_glob = *std::move(glob);
  }
  return rule;
}

}  // namespace

Field misfit(const CallRule& rule, Protocol protocol, const JsonRpcContent& call, bool deny) {
  const std::string& method = *call.method;
  bool fits = false;
  if (protocol == Protocol::json_rpc) {
    fits = rule.any_method || rule.method == method;
  } else if (deny || call.classification == McpMethod::available) {
    fits = !rule.method.empty() && rule.method_glob.matches(method);
  } else {
    fits = call.classification == McpMethod::extension && rule.method == method;  // allowed by its name alone
  }
  if (!fits || method.empty()) return Field::method;
  if (!rule.selects_tool) return Field::none;
  const auto name = call.params.find("name");
  return name != call.params.end() && one_matches(rule.tools, name->second) ? Field::none : Field::tool;
}

Field misfit(const OperationRule& rule, const GraphqlOperation& operation, bool deny) {
  if (!rule.any_type && (rule.type.empty() || !equal_ignoring_case(operation.type, rule.type))) return Field::operation_type;
  if (!rule.any_name && !rule.name.matches(operation.name)) return Field::operation_name;
  if (rule.fields.empty()) return Field::none;
  const auto matches = [&](const std::string& field) { return one_matches(rule.fields, field); };
  const auto& fields = operation.fields;
  const bool fits =
      deny ? std::any_of(fields.begin(), fields.end(), matches) : !fields.empty() && std::all_of(fields.begin(), fields.end(), matches);
  return fits ? Field::none : Field::fields;
}

absl::Status compile_operations(const pb::NetworkEndpoint& endpoint, RuleSet& out) {
  for (int i = 0; i < endpoint.rules_size(); ++i) {
    const auto& allow = endpoint.rules(i).allow();
    if (allow.operation_type().empty()) continue;
    auto rule = compile_operation(allow, i, cat("rules[", i, "].allow"));
    if (!rule.ok()) return rule.status();
    out.allow_operations.push_back(*std::move(rule));
  }
  if (endpoint.rules_size() == 0 && out.protocol == Protocol::graphql) expand_preset(endpoint, out.allow_operations);
  for (int i = 0; i < endpoint.deny_rules_size(); ++i) {
    const auto& deny = endpoint.deny_rules(i);
    if (deny.operation_type().empty()) continue;
    auto rule = compile_operation(deny, i, cat("deny_rules[", i, "]"));
    if (!rule.ok()) return rule.status();
    out.deny_operations.push_back(*std::move(rule));
  }
  out.allow_registered = endpoint.persisted_queries() == "allow_registered";
  for (const auto& [key, entry] : endpoint.graphql_persisted_queries()) {
    GraphqlOperation operation;
    operation.type = entry.operation_type();
    operation.name = entry.operation_name();
    operation.fields.assign(entry.fields().begin(), entry.fields().end());
    out.registry.emplace(key, std::move(operation));
  }
  return absl::OkStatus();
}

absl::Status compile_calls(const pb::NetworkEndpoint& endpoint, RuleSet& out) {
  out.core_methods = out.protocol == Protocol::mcp && endpoint.mcp().allow_all_known_mcp_methods();
  for (int i = 0; i < endpoint.rules_size(); ++i) {
    auto rule = compile_call(endpoint.rules(i).allow(), i, out, cat("rules[", i, "].allow"));
    if (!rule.ok()) return rule.status();
    out.names_tools = out.names_tools || rule->selects_tool;
    out.allow_calls.push_back(*std::move(rule));
  }
  for (int i = 0; i < endpoint.deny_rules_size(); ++i) {
    auto rule = compile_call(endpoint.deny_rules(i), i, out, cat("deny_rules[", i, "]"));
    if (!rule.ok()) return rule.status();
    out.deny_calls.push_back(*std::move(rule));
  }
  return absl::OkStatus();
}

bool has_graphql_policy(const pb::NetworkEndpoint& endpoint) {
  const auto has_fields = [](const auto& rule) {
    return !rule.operation_type().empty() || !rule.operation_name().empty() || rule.fields_size() > 0;
  };
  return !endpoint.graphql_persisted_queries().empty() ||
         (!endpoint.persisted_queries().empty() && endpoint.persisted_queries() != "deny") ||
         std::any_of(endpoint.rules().begin(), endpoint.rules().end(), [&](const auto& rule) { return has_fields(rule.allow()); }) ||
         std::any_of(endpoint.deny_rules().begin(), endpoint.deny_rules().end(), has_fields);
}

}  // namespace openshell::policy
