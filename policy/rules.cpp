#include "policy/rules.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>

#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;
using text::upper;

bool equals_upper(std::string_view value, std::string_view upper_case) {
  return value.size() == upper_case.size() && std::equal(value.begin(), value.end(), upper_case.begin(), [](char a, char b) {
           return (a >= 'a' && a <= 'z' ? static_cast<char>(a - 'a' + 'A') : a) == b;
         });
}

// A rule for GET covers HEAD, for allow and deny alike; nothing covers OPTIONS but itself.
bool method_matches(const HttpRule& rule, std::string_view method) {
  return rule.any_method || equals_upper(method, rule.method) || (rule.method == "GET" && equals_upper(method, "HEAD"));
}

bool one_matches(const QueryCondition& condition, std::string_view value) {
  return std::any_of(condition.globs.begin(), condition.globs.end(), [value](const Glob& glob) { return glob.matches(value); });
}

// Allow: the key is there and all its values match.
bool all_values_match(const QueryCondition& condition, std::span<const QueryParameter> query) {
  bool present = false;
  for (const auto& [name, value] : query) {
    if (name != condition.name) continue;
    if (!one_matches(condition, value)) return false;
    present = true;
  }
  return present;
}

// Deny: the key is there and one of its values matches.
bool some_value_matches(const QueryCondition& condition, std::span<const QueryParameter> query) {
  return std::any_of(query.begin(), query.end(),
                     [&](const QueryParameter& p) { return p.first == condition.name && one_matches(condition, p.second); });
}

template <class Source>
absl::StatusOr<HttpRule> compile_http(const Source& source, int index, GlobKind kind, std::string_view where) {
  HttpRule rule;
  rule.index = index;
  rule.any_method = source.method() == "*";
  rule.method = upper(source.method());
  auto path = compile_glob(source.path(), kind, where);
  if (!path.ok()) return path.status();
  rule.path = *std::move(path);
  for (const auto& [name, matcher] : source.query()) {
    QueryCondition condition{name, {}};
    for (const auto& pattern : patterns_of(matcher)) {
      auto glob = compile_glob(pattern, GlobKind::dotted, where);
      if (!glob.ok()) return glob.status();
      condition.globs.push_back(*std::move(glob));
    }
    rule.query.push_back(std::move(condition));
  }
  return rule;
}

void expand_preset(const pb::NetworkEndpoint& endpoint, Protocol protocol, HttpRules& rules) {
  for (const auto method : preset_words(endpoint, protocol)) {
    HttpRule rule;
    rule.index = static_cast<int>(rules.all().size());
    rule.any_method = method == "*";
    rule.method = method;
    rules.add(std::move(rule));
  }
}

bool is_rpc(Protocol protocol) { return protocol == Protocol::json_rpc || protocol == Protocol::mcp; }

absl::Status compile_http_rules(const pb::NetworkEndpoint& endpoint, RuleSet& set) {
  const GlobKind kind = endpoint.allow_encoded_slash() ? GlobKind::path_encoded_slash : GlobKind::path;
  for (int i = 0; i < endpoint.rules_size(); ++i) {
    const auto& allow = endpoint.rules(i).allow();
    auto rule = compile_http(allow, i, kind, cat("rules[", i, "].allow"));
    if (!rule.ok()) return rule.status();
    if (!allow.method().empty()) set.allow.add(*std::move(rule));  // without a method it allows no HTTP request
  }
  if (endpoint.rules_size() == 0 && set.protocol != Protocol::graphql) expand_preset(endpoint, set.protocol, set.allow);
  for (int i = 0; i < endpoint.deny_rules_size(); ++i) {
    const auto& deny = endpoint.deny_rules(i);
    auto rule = compile_http(deny, i, kind, cat("deny_rules[", i, "]"));
    if (!rule.ok()) return rule.status();
    if (deny.method().empty() && deny.path().empty() && deny.query().empty()) continue;
    rule->any_method = rule->any_method || deny.method().empty();
    set.deny.add(*std::move(rule));
  }
  set.allow.finish();
  set.deny.finish();
  return absl::OkStatus();
}

// Compares one HTTP rule field by field; `name` is the parameter that failed.
Field misfit(const HttpRule& rule, const Request& request, std::string_view& name) {
  if (!method_matches(rule, request.method)) return Field::method;
  if (!rule.path.matches(request.path)) return Field::path;
  for (const auto& condition : rule.query) {
    if (all_values_match(condition, request.query)) continue;
    name = condition.name;
    return Field::query;
  }
  return Field::none;
}

// Of an MCP call without a rule of its own.
bool is_core_call(const RuleSet& set, const JsonRpcContent& call) {
  return set.core_methods && call.classification == McpMethod::available && !(*call.method == "tools/call" && set.names_tools);
}

RuleHit allowed_call(const RuleSet& set, const Request& request) {
  if (request.jsonrpc == nullptr) return {};
  const JsonRpcContent& call = *request.jsonrpc;
  if (call.error && !call.error->empty()) return {};
  const bool mcp = set.protocol == Protocol::mcp;
  const bool has_method = call.method && !call.method->empty();
  if (mcp && request.method == "GET") return {call.receive_stream && !call.has_response && !call.method, -1};
  if (request.method != "POST") return {};
  if (call.has_response) return {mcp, -1};
  if (!has_method) return {};
  for (const CallRule& rule : set.allow_calls) {
    if (misfit(rule, set.protocol, call, false) == Field::none) return {true, rule.index};
  }
  return {mcp && is_core_call(set, call), -1};
}

RuleHit denied_call(const RuleSet& set, const Request& request) {
  if (request.jsonrpc == nullptr || request.method != "POST") return {};
  const JsonRpcContent& call = *request.jsonrpc;
  if (set.protocol == Protocol::json_rpc && call.has_response) return {true, -1};
  if (!call.method || call.method->empty()) return {};
  for (const CallRule& rule : set.deny_calls) {
    if (misfit(rule, set.protocol, call, true) == Field::none) return {true, rule.index};
  }
  return {};
}

// Every operation has to be allowed by some rule; the hit names that of the last one. `refused`: the first that has none.
RuleHit allowed_operations(const RuleSet& set, const GraphqlContent& content, std::size_t* refused = nullptr) {
  RuleHit out;
  if (!content.error.empty()) return out;
  for (std::size_t i = 0; i < content.operations.size(); ++i) {
    if (refused != nullptr) *refused = i;
    const auto* operation = set.effective(content.operations[i]);
    if (operation == nullptr) return {};
    const auto rule = std::find_if(set.allow_operations.begin(), set.allow_operations.end(),
                                   [&](const OperationRule& r) { return misfit(r, *operation, false) == Field::none; });
    if (rule == set.allow_operations.end()) return {};
    out = {true, rule->index};
  }
  return out;
}

RuleHit denied_operations(const RuleSet& set, const GraphqlContent& content) {
  for (const auto& asked : content.operations) {
    const auto* operation = set.effective(asked);
    if (operation == nullptr) continue;  // never allowed, so nothing is left to deny
    for (const OperationRule& rule : set.deny_operations) {
      if (misfit(rule, *operation, true) == Field::none) return {true, rule.index};
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> patterns_of(const pb::L7QueryMatcher& matcher) {
  if (matcher.any_size() == 0) return {matcher.glob()};
  return {matcher.any().begin(), matcher.any().end()};
}

void HttpRules::finish() {
  indexed_ = rules_.size() >= kIndexedFrom;
  for (std::uint32_t i = 0; indexed_ && i < rules_.size(); ++i) index_.add(rules_[i].path, i);
}

RuleHit RuleSet::allowing(const Request& request) const {
  if (is_rpc(protocol)) return allowed_call(*this, request);
  if (request.graphql != nullptr && (protocol == Protocol::graphql || protocol == Protocol::websocket)) {
    return allowed_operations(*this, *request.graphql);  // a rule over the plain request says nothing about its operations
  }
  const auto* rule = allow.first(request.path, [&](const HttpRule& r) {
    return method_matches(r, request.method) &&
           std::all_of(r.query.begin(), r.query.end(), [&](const auto& c) { return all_values_match(c, request.query); });
  });
  return {rule != nullptr, rule != nullptr ? rule->index : -1};
}

RuleHit RuleSet::denying(const Request& request) const {
  if (is_rpc(protocol)) {
    if (const auto call = denied_call(*this, request); call.hit) return call;
  } else {
    const auto* rule = deny.first(request.path, [&](const HttpRule& r) {
      return method_matches(r, request.method) &&
             std::all_of(r.query.begin(), r.query.end(), [&](const auto& c) { return some_value_matches(c, request.query); });
    });
    if (rule != nullptr) return {true, rule->index};
  }
  if (request.graphql == nullptr) return {};
  if (const auto operation = denied_operations(*this, *request.graphql); operation.hit) return operation;
  const bool judges = protocol == Protocol::graphql || protocol == Protocol::websocket;
  return {judges && !allowed_operations(*this, *request.graphql).hit, -1};
}

Miss RuleSet::nearest(const Request& request) const {
  Miss best;
  best.field = Field::method;
  const auto offer = [&](Field field, int rule, std::string_view name = {}) {
    if (field == Field::none || (best.rule != -1 && field <= best.field)) return;
    best.field = field;
    best.rule = rule;
    best.name = name;
  };
  if (is_rpc(protocol)) {
    for (const auto& rule : allow_calls) {
      if (request.jsonrpc != nullptr && request.jsonrpc->method) offer(misfit(rule, protocol, *request.jsonrpc, false), rule.index);
    }
  } else if (request.graphql != nullptr) {
    best.field = Field::operation_type;
    allowed_operations(*this, *request.graphql, &best.operation);
    if (best.operation >= request.graphql->operations.size()) return best;
    const auto* operation = effective(request.graphql->operations[best.operation]);
    if (operation == nullptr) {
      best.field = Field::persisted_query;
      return best;
    }
    for (const auto& rule : allow_operations) offer(misfit(rule, *operation, false), rule.index);
  } else {
    for (const auto& rule : allow.all()) {
      std::string_view name;
      const auto field = misfit(rule, request, name);
      offer(field, rule.index, name);
    }
  }
  return best;
}

const GraphqlOperation* RuleSet::effective(const GraphqlOperation& operation) const {
  if (!operation.persisted || !operation.type.empty()) return &operation;
  if (!allow_registered) return nullptr;
  const std::string& key = operation.persisted_hash.empty() ? operation.persisted_id : operation.persisted_hash;
  const auto found = registry.find(key);
  return found == registry.end() ? nullptr : &found->second;
}

bool RuleSet::all_registered(const GraphqlContent& content) const {
  return std::all_of(content.operations.begin(), content.operations.end(), [this](const auto& one) { return effective(one) != nullptr; });
}

absl::StatusOr<Glob> compile_glob(const std::string& pattern, GlobKind kind, std::string_view where) {
  auto glob = Glob::compile(pattern, kind);
  if (!glob.ok()) return absl::InvalidArgumentError(cat(where, ": glob pattern '", pattern, "' ", std::string{glob.status().message()}));
  return glob;
}

absl::StatusOr<RuleSet> compile_rules(const pb::NetworkEndpoint& endpoint, Protocol protocol) {
  RuleSet set;
  set.protocol = protocol;
  auto path = compile_glob(endpoint.path(), endpoint.allow_encoded_slash() ? GlobKind::path_encoded_slash : GlobKind::path, "path");
  if (!path.ok()) return path.status();
  set.path = *std::move(path);
  if (!is_inspected(protocol)) return set;
  auto status = is_rpc(protocol) ? compile_calls(endpoint, set) : compile_http_rules(endpoint, set);
  if (status.ok()) status = compile_operations(endpoint, set);
  if (!status.ok()) return status;
  return set;
}

std::span<const std::string_view> preset_words(const pb::NetworkEndpoint& endpoint, Protocol protocol) {
  using Words = std::span<const std::string_view>;
  static constexpr std::array<std::string_view, 1> kEvery{"*"};
  // The first half of each reads.
  static constexpr std::array<std::string_view, 6> kHttp{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"};
  static constexpr std::array<std::string_view, 2> kWebsocket{"GET", "WEBSOCKET_TEXT"};
  static constexpr std::array<std::string_view, 2> kGraphql{"query", "mutation"};
  const Words writing = protocol == Protocol::graphql     ? Words{kGraphql}
                        : protocol == Protocol::websocket ? Words{kWebsocket}
                                                          : Words{kHttp};
  switch (endpoint.access()) {
    case pb::NETWORK_ACCESS_PRESET_READ_ONLY:
      return writing.first(writing.size() / 2);
    case pb::NETWORK_ACCESS_PRESET_READ_WRITE:
      return writing;
    case pb::NETWORK_ACCESS_PRESET_FULL:
      return kEvery;
    default:
      return {};
  }
}

// Same bytes for the same handling: maps sorted, rules and what only says where the endpoint applies left out.
std::string handling_of(const pb::NetworkEndpoint& endpoint) {
  pb::NetworkEndpoint bare = endpoint;
  bare.clear_rules();
  bare.clear_deny_rules();
  bare.clear_access();
  bare.clear_port();
  bare.clear_ports();
  bare.clear_host();
  bare.clear_advisor_proposed();
  bare.clear_allowed_ips();
  std::string out;
  google::protobuf::io::StringOutputStream stream{&out};
  google::protobuf::io::CodedOutputStream coded{&stream};
  coded.SetSerializationDeterministic(true);
  bare.SerializeToCodedStream(&coded);
  coded.Trim();
  return out;
}

std::optional<Protocol> parse_protocol(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, Protocol>, 8> kNames{{{"", Protocol::none},
                                                                         {"tcp", Protocol::tcp},
                                                                         {"sql", Protocol::sql},
                                                                         {"rest", Protocol::rest},
                                                                         {"websocket", Protocol::websocket},
                                                                         {"graphql", Protocol::graphql},
                                                                         {"json-rpc", Protocol::json_rpc},
                                                                         {"mcp", Protocol::mcp}}};
  const std::string name = text::lower(text);
  for (const auto& [spelling, protocol] : kNames) {
    if (name == spelling) return protocol;
  }
  return std::nullopt;
}

}  // namespace openshell::policy
