#include "policy/evaluator_data.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "policy/document.hpp"
#include "policy/glob_tokens.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;
using Ranks = std::map<std::pair<std::string_view, std::uint32_t>, const Endpoint*>;

Document string(const std::string& value) { return Document::string(value); }
Document number(std::uint64_t value) { return Document::bare(std::to_string(value)); }

template <class Items>
Document strings(const Items& items) {
  Document out = Document::list();
  for (const auto& item : items) out.push(string(item));
  return out;
}

void some(Document& out, const char* key, const std::string& value) {
  if (!value.empty()) out.set(key, string(value));
}
void some(Document& out, const char* key, bool value) {
  if (value) out.set(key, Document::boolean(true));
}
void some(Document& out, const char* key, std::uint32_t value) {
  if (value != 0) out.set(key, number(value));
}

template <class Map, class Use>
void each_sorted(const Map& map, Use&& use) {
  std::map<std::string_view, typename Map::const_iterator> order;
  for (auto at = map.begin(); at != map.end(); ++at) order.emplace(at->first, at);
  for (const auto& [key, at] : order) use(std::string{key}, at->second);
}

// --- rules

template <class Map>
Document matchers(const Map& map) {
  Document out = Document::mapping();
  each_sorted(map, [&](const std::string& name, const pb::L7QueryMatcher& matcher) {
    auto& entry = out.set(name, Document::mapping());
    if (matcher.any_size() > 0) {
      entry.set("any", strings(matcher.any()));
    } else {
      entry.set("glob", string(matcher.glob()));
    }
  });
  return out;
}

template <class Rule>
void lists(Document& out, const Rule& rule) {
  if (rule.fields_size() > 0) out.set("fields", strings(rule.fields()));
  if (!rule.query().empty()) out.set("query", matchers(rule.query()));
  if (!rule.params().empty()) out.set("params", matchers(rule.params()));
}

// The method that an MCP rule without one means.
template <class Rule>
std::string method_of(const Rule& rule, const pb::NetworkEndpoint& endpoint) {
  if (!rule.method().empty() || endpoint.protocol() != "mcp" || !endpoint.mcp().allow_all_known_mcp_methods()) return rule.method();
  return rule.params().contains("name") ? "tools/call" : "*";
}

void allow(Document& rules, const std::string& method, const std::string& path, const std::string& command, const std::string& type,
           const std::string& name, const pb::L7Allow* more = nullptr) {
  auto& out = rules.push(Document::mapping()).set("allow", Document::mapping());
  out.set("method", string(method));
  out.set("path", string(canonical_path_pattern(path)));
  out.set("command", string(command));
  out.set("operation_type", string(type));
  out.set("operation_name", string(name));
  if (more != nullptr) lists(out, *more);
}

void preset(Document& rules, const pb::NetworkEndpoint& endpoint) {
  const bool graphql = endpoint.protocol() == "graphql";
  for (const auto one : preset_words(endpoint, parse_protocol(endpoint.protocol()).value_or(Protocol::none))) {
    const std::string word{one};
    graphql ? allow(rules, "", "", "", word, "") : allow(rules, word, "**", "", "", "");
  }
}

Document allow_rules(const pb::NetworkEndpoint& endpoint) {
  Document out = Document::list();
  for (const auto& rule : endpoint.rules()) {
    const auto& a = rule.allow();
    allow(out, method_of(a, endpoint), a.path(), a.command(), a.operation_type(), a.operation_name(), &a);
  }
  if (endpoint.rules_size() > 0) return out;
  if (endpoint.access() != pb::NETWORK_ACCESS_PRESET_UNSPECIFIED) {
    preset(out, endpoint);
  } else if (endpoint.protocol() == "mcp" && endpoint.mcp().allow_all_known_mcp_methods()) {
    allow(out, "*", "", "", "", "");
  }
  return out;
}

Document deny_rules(const pb::NetworkEndpoint& endpoint) {
  Document out = Document::list();
  for (const auto& rule : endpoint.deny_rules()) {
    auto& entry = out.push(Document::mapping());
    some(entry, "method", method_of(rule, endpoint));
    some(entry, "path", canonical_path_pattern(rule.path()));
    some(entry, "command", rule.command());
    some(entry, "operation_type", rule.operation_type());
    some(entry, "operation_name", rule.operation_name());
    lists(entry, rule);
  }
  return out;
}

// --- endpoints

void modes(Document& out, const pb::NetworkEndpoint& e) {
  constexpr std::array<std::string_view, 3> kEnforcement{"", "enforce", "audit"};
  constexpr std::array<std::string_view, 4> kAccess{"", "read-only", "read-write", "full"};
  some(out, "protocol", e.protocol());
  some(out, "tls", std::string{e.tls() == pb::NETWORK_TLS_MODE_SKIP ? "skip" : ""});
  some(out, "enforcement", std::string{kEnforcement.at(static_cast<std::size_t>(e.enforcement()))});
  some(out, "access", std::string{kAccess.at(static_cast<std::size_t>(e.access()))});
}

void graphql(Document& out, const pb::NetworkEndpoint& e) {
  some(out, "persisted_queries", e.persisted_queries());
  if (e.graphql_persisted_queries().empty()) return;
  auto& registry = out.set("graphql_persisted_queries", Document::mapping());
  each_sorted(e.graphql_persisted_queries(), [&](const std::string& id, const pb::GraphqlOperation& operation) {
    auto& entry = registry.set(id, Document::mapping());
    some(entry, "operation_type", operation.operation_type());
    some(entry, "operation_name", operation.operation_name());
    if (operation.fields_size() > 0) entry.set("fields", strings(operation.fields()));
  });
}

void mcp(Document& out, const pb::NetworkEndpoint& e) {
  if (e.protocol() != "mcp") return;
  out.set("mcp_versions", strings(e.mcp().versions()));
  if (e.mcp().has_strict_tool_names()) out.set("mcp_strict_tool_names", Document::boolean(e.mcp().strict_tool_names()));
  if (e.mcp().has_allow_all_known_mcp_methods()) {
    out.set("mcp_allow_all_known_mcp_methods", Document::boolean(e.mcp().allow_all_known_mcp_methods()));
  }
}

Document endpoint(const pb::NetworkEndpoint& e, const Endpoint& compiled) {
  Document out = Document::mapping();
  out.set("host", string(compiled.literal ? std::string{compiled.host} : e.host()));
  auto& ports = out.set("ports", Document::list());
  for (const auto port : compiled.ports) ports.push(number(port));
  out.set("_conn_rank", number(compiled.connection_rank));
  out.set("_rank", number(compiled.request_rank));
  modes(out, e);
  some(out, "path", canonical_path_pattern(e.path()));
  if (auto rules = allow_rules(e); !rules.entries.empty()) out.set("rules", std::move(rules));
  if (auto rules = deny_rules(e); !rules.entries.empty()) out.set("deny_rules", std::move(rules));
  if (e.allowed_ips_size() > 0) out.set("allowed_ips", strings(e.allowed_ips()));
  some(out, "allow_encoded_slash", e.allow_encoded_slash());
  some(out, "websocket_credential_rewrite", e.websocket_credential_rewrite());
  some(out, "request_body_credential_rewrite", e.request_body_credential_rewrite());
  some(out, "allow_uninspected_credentials", e.allow_uninspected_credentials());
  some(out, "advisor_proposed", e.advisor_proposed());
  some(out, "provider_credentialed", e.provider_credentialed());
  graphql(out, e);
  some(out, "graphql_max_body_bytes", e.graphql_max_body_bytes());
  some(out, "json_rpc_max_body_bytes", e.json_rpc_max_body_bytes());
  some(out, "credential_signing", e.credential_signing());
  some(out, "signing_service", e.signing_service());
  some(out, "signing_region", e.signing_region());
  mcp(out, e);
  if (e.has_credential_binding()) {
    out.set("credential_binding", Document::mapping()).set("provider", string(e.credential_binding().provider()));
  }
  return out;
}

Document binaries(const pb::NetworkPolicyRule& rule, const MatcherOptions& options) {
  Document out = Document::list();
  const auto add = [&out](const std::string& path) { out.push(Document::mapping()).set("path", string(path)); };
  for (const auto& binary : rule.binaries()) {
    add(binary.path());
    for (const auto& [written, target] : options.symlink_targets) {
      if (written == binary.path() && binary.path().find('*') == std::string::npos) add(target);
    }
  }
  return out;
}

Document network_rule(const std::string& key, const pb::NetworkPolicyRule& rule, const Ranks& ranks, const MatcherOptions& options) {
  Document out = Document::mapping();
  out.set("name", string(rule.name().empty() ? key : rule.name()));
  auto& endpoints = out.set("endpoints", Document::list());
  for (int i = 0; i < rule.endpoints_size(); ++i) {
    endpoints.push(endpoint(rule.endpoints(i), *ranks.at({key, static_cast<std::uint32_t>(i)})));
  }
  out.set("binaries", binaries(rule, options));
  return out;
}

// --- the rest

Document value(const google::protobuf::Value& source);

Document structure(const google::protobuf::Struct& object) {
  Document out = Document::mapping();
  each_sorted(object.fields(), [&](const std::string& key, const google::protobuf::Value& field) { out.set(key, value(field)); });
  return out;
}

Document json_number(double number) {
  if (!std::isfinite(number)) return Document::bare("null");
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return Document::bare(std::string{digits.data(), error == std::errc{} ? static_cast<std::size_t>(end - digits.data()) : 0});
}

Document value(const google::protobuf::Value& source) {
  if (source.has_string_value()) return string(source.string_value());
  if (source.has_bool_value()) return Document::boolean(source.bool_value());
  if (source.has_struct_value()) return structure(source.struct_value());
  if (source.has_number_value()) return json_number(source.number_value());
  if (!source.has_list_value()) return Document::bare("null");
  Document out = Document::list();
  for (const auto& item : source.list_value().values()) out.push(value(item));
  return out;
}

Document middleware(const pb::NetworkMiddlewareConfig& config) {
  Document out = Document::mapping();
  out.set("middleware", string(config.middleware()));
  out.set("order", Document::bare(std::to_string(config.order())));
  some(out, "name", config.name());
  if (config.has_config()) out.set("config", structure(config.config()));
  some(out, "on_error", config.on_error());
  if (!config.has_endpoints()) return out;
  auto& selector = out.set("endpoints", Document::mapping());
  if (config.endpoints().include_size() > 0) selector.set("include", strings(config.endpoints().include()));
  if (config.endpoints().exclude_size() > 0) selector.set("exclude", strings(config.endpoints().exclude()));
  return out;
}

void sections(Document& out, const pb::SandboxPolicy& policy) {
  auto& filesystem = out.set("filesystem_policy", Document::mapping());
  filesystem.set("include_workdir", Document::boolean(!policy.has_filesystem() || policy.filesystem().include_workdir()));
  filesystem.set("read_only", strings(policy.filesystem().read_only()));
  filesystem.set("read_write", strings(policy.filesystem().read_write()));
  const auto& mode = policy.landlock().compatibility();
  out.set("landlock", Document::mapping()).set("compatibility", string(mode.empty() ? "best_effort" : mode));
  auto& process = out.set("process", Document::mapping());
  process.set("run_as_user", string(policy.has_process() ? policy.process().run_as_user() : "sandbox"));
  process.set("run_as_group", string(policy.has_process() ? policy.process().run_as_group() : "sandbox"));
}

}  // namespace

std::string evaluator_data(const Matcher& matcher, bool pretty) {
  const auto& policy = matcher.policy();
  Ranks ranks;
  for (const Endpoint& one : matcher.all_endpoints()) ranks.emplace(std::make_pair(one.policy, one.index), &one);
  Document out = Document::mapping();
  sections(out, policy);
  auto& rules = out.set("network_policies", Document::mapping());
  each_sorted(policy.network_policies(), [&](const std::string& key, const pb::NetworkPolicyRule& rule) {
    rules.set(key, network_rule(key, rule, ranks, matcher.options()));
  });
  auto& middlewares = out.set("network_middlewares", Document::mapping());
  each_sorted(policy.network_middlewares(), [&](const std::string& key, const auto& config) { middlewares.set(key, middleware(config)); });
  out.set("runtime", Document::mapping()).set("require_binary_identity", Document::boolean(matcher.options().require_binary_identity));
  return write_json(out, pretty);
}

}  // namespace openshell::policy
