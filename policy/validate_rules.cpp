// Checks of the allow and deny rules of one endpoint.
#include <algorithm>
#include <array>

#include "policy/glob.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "policy/validate_parts.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

constexpr std::string_view kToolsCall = "tools/call";

bool is_operation_type(std::string_view value) {
  const std::string name = text::lower(value);
  return name == "query" || name == "mutation" || name == "subscription";
}

bool has_wildcard(std::string_view pattern) { return pattern.find_first_of("*?[]{}") != std::string_view::npos; }

template <class Rule>
bool has_graphql(const Rule& rule) {
  return !rule.operation_type().empty() || !rule.operation_name().empty() || rule.fields_size() > 0;
}
template <class Rule>
bool has_http(const Rule& rule) {
  return !rule.method().empty() || !rule.path().empty() || !rule.query().empty();
}

class RuleCheck {
 public:
  RuleCheck(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Protocol protocol, Diagnostics& out)
      : place_{place}, endpoint_{endpoint}, protocol_{protocol}, out_{out} {}

  void run() {
    for (int i = 0; i < endpoint_.rules_size(); ++i) {
      at_ = {cat("rules[", i, "].allow"), cat("rules[", i, "].allow"), true};
      one(endpoint_.rules(i).allow());
    }
    for (int i = 0; i < endpoint_.deny_rules_size(); ++i) {
      at_ = {cat("deny_rules[", i, "]"), cat("deny_rules[", i, "]"), false};
      one(endpoint_.deny_rules(i));
    }
    registry();
    if (protocol_ == Protocol::websocket) websocket_text();
    if (protocol_ == Protocol::mcp) tool_conflicts();
  }

 private:
  struct At {
    std::string path;  // below the endpoint
    std::string loc;
    bool allow = true;
  };

  void error(std::string_view field, std::string_view rest, std::string kind, std::string cure = {}) {
    out_.error(cat(place_.path(), ".", at_.path, field), cat(place_.loc(), ".", at_.loc, rest), std::move(cure), std::move(kind));
  }
  void warning(std::string_view field, std::string_view rest) {
    out_.warning(cat(place_.path(), ".", at_.path, field), cat(place_.loc(), ".", at_.loc, rest));
  }
  void l7(std::string_view path, std::string_view reason, std::string kind) {
    out_.error(cat(place_.path(), ".", path),
               cat("network policy '", place_.rule_name, "': endpoint ", place_.index, " has invalid L7 configuration: ", reason), "",
               std::move(kind));
  }
  void glob(std::string_view field, std::string_view pattern, GlobKind kind) {
    const auto compiled = Glob::compile(pattern, kind);
    if (compiled.ok()) return;
    error(field, cat(field, ": glob pattern '", shorten(pattern, 256), "' ", std::string{compiled.status().message()}), "invalid glob");
  }

  template <class Rule>
  void one(const Rule& rule) {
    glob(".path", rule.path(), endpoint_.allow_encoded_slash() ? GlobKind::path_encoded_slash : GlobKind::path);
    glob(".operation_name", rule.operation_name(), GlobKind::dotted);
    for (const auto& field : rule.fields()) {
      if (field.empty()) error(".fields", ".fields: field glob must not be empty", "empty glob");
      glob(".fields", field, GlobKind::dotted);
    }
    matchers(rule.query(), ".query");
    matchers(rule.params(), ".params");
    switch (protocol_) {
      case Protocol::json_rpc:
        json_rpc(rule);
        break;
      case Protocol::mcp:
        mcp(rule);
        break;
      case Protocol::graphql:
        graphql(rule, true);
        break;
      case Protocol::websocket:
        websocket(rule);
        break;
      default:
        break;
    }
    if (protocol_ != Protocol::mcp && protocol_ != Protocol::json_rpc && !rule.params().empty()) {
      error(".params", ".params: params matching is only valid for protocol mcp", "params on another protocol");
    }
    if (protocol_ != Protocol::graphql && protocol_ != Protocol::websocket && has_graphql(rule)) {
      warning("", ": GraphQL rule fields are ignored unless protocol is graphql or websocket");
    }
    if (protocol_ == Protocol::rest || protocol_ == Protocol::websocket) http(rule);
  }

  template <class Map>
  void matchers(const Map& map, std::string_view field) {
    std::vector<std::string> names;
    for (const auto& [name, matcher] : map) names.push_back(name);
    std::sort(names.begin(), names.end());
    for (const auto& name : names) {
      const auto& matcher = map.at(name);
      const std::string at = cat(field, ".", name);
      if (!matcher.glob().empty() && matcher.any_size() > 0) {
        error(at, cat(at, ": matcher cannot specify both `glob` and `any`"), "matcher with glob and any");
      }
      for (const auto& pattern : patterns_of(matcher)) glob(at, pattern, GlobKind::dotted);
    }
  }

  template <class Rule>
  void http(const Rule& rule) {
    constexpr std::array<std::string_view, 8> kRest{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "*"};
    constexpr std::array<std::string_view, 3> kWebsocket{"GET", "WEBSOCKET_TEXT", "*"};
    const bool rest = protocol_ == Protocol::rest;
    if (at_.allow && !rule.method().empty() && rule.path().empty()) warning(".path", ".path: missing path allows every path");
    if (!at_.allow && rest && !rule.command().empty()) warning(".command", ": command is for SQL protocol, not REST");
    if (rule.method().empty()) {
      if (at_.allow && !has_graphql(rule) && (!rule.path().empty() || !rule.query().empty())) {
        warning(".method", ".method: an allow rule without method allows no HTTP request");
      }
      return;
    }
    const std::string method = text::upper(rule.method());
    const bool known = rest ? std::find(kRest.begin(), kRest.end(), method) != kRest.end()
                            : std::find(kWebsocket.begin(), kWebsocket.end(), method) != kWebsocket.end();
    if (known) return;
    warning(".method", cat(": Unknown ", rest ? "HTTP" : "WebSocket", " method '", shorten(rule.method(), 64),
                           "'. Standard methods: ", rest ? "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS, *" : "GET, WEBSOCKET_TEXT, *"));
  }

  template <class Rule>
  void graphql(const Rule& rule, bool required) {
    if (rule.operation_type().empty()) {
      if (required) error("", ".operation_type: required for GraphQL L7 rules", "missing operation_type");
    } else if (!is_operation_type(rule.operation_type())) {
      l7(cat(at_.path, ".operation_type"), cat(at_.loc, ".operation_type must be query, mutation, or subscription"),
         "unknown operation_type");
    }
  }

  template <class Rule>
  void websocket(const Rule& rule) {
    if (!has_graphql(rule)) return;
    if (has_http(rule)) {
      error("",
            cat(": WebSocket GraphQL ", at_.allow ? "allow" : "deny",
                " rules must not combine method/path/query with operation_type/operation_name/fields"),
            "mixed websocket rule");
    }
    graphql(rule, true);
  }

  template <class Rule>
  void json_rpc(const Rule& rule) {
    if (rule.method().empty()) {
      error("", ".method: required for json-rpc L7 rules", "missing method");
    } else if (rule.method() != "*" && has_wildcard(rule.method())) {
      error(".method",
            ".method: generic JSON-RPC method rules do not support glob or wildcard matchers; use \"*\" to allow all methods or an exact "
            "method name",
            "method glob");
    }
    if (!rule.params().empty()) error(".params", ": JSON-RPC rules do not support params matchers yet", "params on json-rpc");
    if (!rule.path().empty() || !rule.query().empty()) error("", ": json-rpc L7 rules must use method, not path/query", "path on json-rpc");
  }

  [[nodiscard]] bool profile() const { return endpoint_.mcp().allow_all_known_mcp_methods(); }
  [[nodiscard]] bool strict() const { return !endpoint_.mcp().has_strict_tool_names() || endpoint_.mcp().strict_tool_names(); }

  template <class Rule>
  void mcp(const Rule& rule) {
    const auto tool = rule.params().find("name");
    const bool selects_tool = tool != rule.params().end();
    if (!rule.method().starts_with("tools/") && has_wildcard(rule.method())) {
      error(".method",
            ".method: MCP method globs are only valid for the tools/ method family; omit method to use the endpoint method profile",
            "method glob");
    } else {
      glob(".method", rule.method(), GlobKind::dotted);
    }
    if (rule.method().empty() && !profile()) {
      error("", ".method: required when mcp.allow_all_known_mcp_methods is false", "missing method");
    }
    if (selects_tool && !rule.method().empty() && rule.method() != kToolsCall) {
      error(".method", cat(".method: must be tools/call when an MCP rule uses tool or params.name, got '", shorten(rule.method(), 64), "'"),
            "tool with another method");
    }
    for (const auto& [name, matcher] : rule.params()) {
      if (name != "name")
        error(cat(".params.", name), cat(".params.", shorten(name, 64), ": MCP tool argument matching is not supported yet"),
              "tool argument");
    }
    if (!rule.path().empty() || !rule.query().empty()) error("", ": mcp L7 rules must use method/tool, not path/query", "path on mcp");
    if (!selects_tool || strict()) return;
    const auto patterns = patterns_of(tool->second);
    if (std::any_of(patterns.begin(), patterns.end(), [](const auto& pattern) { return has_wildcard(pattern); })) {
      error(".params.name", ".tool: wildcard tool-name matchers require mcp.strict_tool_names to remain enabled", "wildcard tool");
    }
  }

  void registry() {
    if (protocol_ != Protocol::graphql && protocol_ != Protocol::websocket) return;
    std::vector<std::string> keys;
    for (const auto& [key, operation] : endpoint_.graphql_persisted_queries()) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    for (const auto& key : keys) {
      if (is_operation_type(endpoint_.graphql_persisted_queries().at(key).operation_type())) continue;
      const std::string name = cat("graphql_persisted_queries[", shorten(key, 128), "].operation_type");
      l7(cat("graphql_persisted_queries.", key), cat(name, " must be query, mutation, or subscription"), "unknown operation_type");
    }
  }

  void websocket_text() {
    bool graphql = !endpoint_.graphql_persisted_queries().empty() ||
                   (!endpoint_.persisted_queries().empty() && endpoint_.persisted_queries() != "deny");
    bool text = false;
    for (const auto& rule : endpoint_.rules()) {
      graphql = graphql || has_graphql(rule.allow());
      text = text || text::lower(rule.allow().method()) == "websocket_text";
    }
    for (const auto& rule : endpoint_.deny_rules()) graphql = graphql || has_graphql(rule);
    if (!graphql || !text) return;
    out_.error(
        cat(place_.path(), ".rules"),
        cat(place_.loc(),
            ": WebSocket endpoints with GraphQL operation policy must use operation_type/operation_name/fields rules for client messages "
            "instead of WEBSOCKET_TEXT"),
        "", "WEBSOCKET_TEXT with GraphQL");
  }

  [[nodiscard]] bool covers_tools_call(const std::string& method) const {
    if (method.empty()) return profile();
    const auto compiled = Glob::compile(method, GlobKind::dotted);
    return compiled.ok() && compiled->matches(kToolsCall);
  }

  // A rule that names tools and another that covers every tool call contradict each other.
  void tool_conflicts() {
    const bool some_tool = std::any_of(endpoint_.rules().begin(), endpoint_.rules().end(),
                                       [](const pb::L7Rule& rule) { return rule.allow().params().contains("name"); });
    if (!some_tool) return;
    for (int i = 0; i < endpoint_.rules_size(); ++i) {
      const auto& allow = endpoint_.rules(i).allow();
      if (allow.params().contains("name") || !covers_tools_call(allow.method())) continue;
      at_ = {cat("rules[", i, "].allow"), cat("rules[", i, "].allow"), true};
      error(".method",
            ": method matcher allows every tool call and conflicts with MCP tool allow rules; add tool or params.name to narrow "
            "tools/call, or remove "
            "the tool allow rules",
            "conflicting tool rules");
    }
    for (int i = 0; i < endpoint_.deny_rules_size(); ++i) {
      const auto& deny = endpoint_.deny_rules(i);
      if (deny.params().contains("name") || !covers_tools_call(deny.method())) continue;
      at_ = {cat("deny_rules[", i, "]"), cat("deny_rules[", i, "]"), false};
      error(".method",
            ": method matcher denies every tool call and conflicts with MCP tool allow rules; add tool or params.name to deny specific "
            "tools, or remove "
            "the tool allow rules",
            "conflicting tool rules");
    }
  }

  const EndpointPlace& place_;
  const pb::NetworkEndpoint& endpoint_;
  Protocol protocol_;
  Diagnostics& out_;
  At at_;
};

}  // namespace

void check_rules(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Protocol protocol, Diagnostics& out) {
  RuleCheck{place, endpoint, protocol, out}.run();
}

}  // namespace openshell::policy
