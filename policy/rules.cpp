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

std::string upper(std::string_view value) {
  std::string out{value};
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

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

absl::StatusOr<Glob> compile_glob(const std::string& pattern, GlobKind kind, std::string_view where) {
  auto glob = Glob::compile(pattern, kind);
  if (!glob.ok()) return absl::InvalidArgumentError(cat(where, ": glob pattern '", pattern, "' ", std::string{glob.status().message()}));
  return glob;
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
    std::vector<std::string> patterns{matcher.any().begin(), matcher.any().end()};
    if (patterns.empty()) patterns.push_back(matcher.glob());
    for (const auto& pattern : patterns) {
      auto glob = compile_glob(pattern, GlobKind::dotted, where);
      if (!glob.ok()) return glob.status();
      condition.globs.push_back(*std::move(glob));
    }
    rule.query.push_back(std::move(condition));
  }
  return rule;
}

void expand_preset(pb::NetworkAccessPreset access, Protocol protocol, std::vector<HttpRule>& rules) {
  std::vector<std::string_view> methods;
  const bool websocket = protocol == Protocol::websocket;
  switch (access) {
    case pb::NETWORK_ACCESS_PRESET_READ_ONLY:
      methods = websocket ? std::vector<std::string_view>{"GET"} : std::vector<std::string_view>{"GET", "HEAD", "OPTIONS"};
      break;
    case pb::NETWORK_ACCESS_PRESET_READ_WRITE:
      methods = websocket ? std::vector<std::string_view>{"GET", "WEBSOCKET_TEXT"}
                          : std::vector<std::string_view>{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"};
      break;
    case pb::NETWORK_ACCESS_PRESET_FULL:
      methods = {"*"};
      break;
    default:
      return;
  }
  for (const auto method : methods) {
    HttpRule rule;
    rule.index = static_cast<int>(rules.size());
    rule.any_method = method == "*";
    rule.method = method;
    rules.push_back(std::move(rule));
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

bool speaks_http(Protocol protocol) {
  return protocol == Protocol::rest || protocol == Protocol::websocket || protocol == Protocol::graphql;
}

}  // namespace

const HttpRule* RuleSet::allowing(const Request& request) const {
  for (const HttpRule& rule : allow) {
    if (!method_matches(rule, request.method) || !rule.path.matches(request.path)) continue;
    if (std::all_of(rule.query.begin(), rule.query.end(), [&](const auto& c) { return all_values_match(c, request.query); })) return &rule;
  }
  return nullptr;
}

const HttpRule* RuleSet::denying(const Request& request) const {
  for (const HttpRule& rule : deny) {
    if (!method_matches(rule, request.method) || !rule.path.matches(request.path)) continue;
    if (std::all_of(rule.query.begin(), rule.query.end(), [&](const auto& c) { return some_value_matches(c, request.query); }))
      return &rule;
  }
  return nullptr;
}

absl::StatusOr<RuleSet> compile_rules(const pb::NetworkEndpoint& endpoint, Protocol protocol) {
  const GlobKind kind = endpoint.allow_encoded_slash() ? GlobKind::path_encoded_slash : GlobKind::path;
  RuleSet set;
  auto path = compile_glob(endpoint.path(), kind, "path");
  if (!path.ok()) return path.status();
  set.path = *std::move(path);
  set.handling = handling_of(endpoint);
  if (!speaks_http(protocol)) return set;
  for (int i = 0; i < endpoint.rules_size(); ++i) {
    const auto& allow = endpoint.rules(i).allow();
    auto rule = compile_http(allow, i, kind, cat("rules[", i, "].allow"));
    if (!rule.ok()) return rule.status();
    if (!allow.method().empty()) set.allow.push_back(*std::move(rule));  // without a method it allows no HTTP request
  }
  if (endpoint.rules_size() == 0) expand_preset(endpoint.access(), protocol, set.allow);
  for (int i = 0; i < endpoint.deny_rules_size(); ++i) {
    const auto& deny = endpoint.deny_rules(i);
    auto rule = compile_http(deny, i, kind, cat("deny_rules[", i, "]"));
    if (!rule.ok()) return rule.status();
    if (deny.method().empty() && deny.path().empty() && deny.query().empty()) continue;
    rule->any_method = rule->any_method || deny.method().empty();
    set.deny.push_back(*std::move(rule));
  }
  return set;
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
