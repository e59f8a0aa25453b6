// Policies and questions by chance, of few different words, so that things meet often. For tests that compare two engines.
#pragma once

#include <cstdlib>
#include <random>
#include <string>

#include "policy/normalize.hpp"
#include "policy/request_content.hpp"
#include "sandbox.pb.h"
#include "tests/unit/policy/plain_rules.hpp"

namespace openshell::policy::random_policies {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_{seed} {}
  std::size_t below(std::size_t n) { return engine_() % n; }
  bool chance(std::size_t percent) { return below(100) < percent; }
  template <class T, std::size_t N>
  T pick(const T (&items)[N]) {
    return items[below(N)];
  }

 private:
  std::mt19937_64 engine_;
};

inline constexpr const char* kHosts[] = {"a.x.test", "b.x.test", "a.y.x.test", "ab.x.test", "host.docker.internal"};
inline constexpr const char* kHostPatterns[] = {"a.x.test",  "*.x.test", "**.x.test",  "a*.x.test",
                                                "*b.x.test", "a.*.test", "*.*.x.test", "B.x.test"};
inline constexpr const char* kPaths[] = {"/", "/v1", "/v1/", "/v1/a", "/v1/a/b", "/w", "/w/ab"};
inline constexpr const char* kPathPatterns[] = {"", "**", "/**", "/v1", "/v1/*", "/v1/**", "/**/b", "/w/a*", "/*", "/v1/a"};
inline constexpr const char* kMethods[] = {"GET", "POST", "HEAD", "DELETE", "WEBSOCKET_TEXT"};
inline constexpr const char* kMethodRules[] = {"GET", "POST", "*", "get", "WEBSOCKET_TEXT"};
inline constexpr const char* kBinaries[] = {"/usr/bin/curl", "/usr/bin/node", "/opt/a/b"};
inline constexpr const char* kBinaryPatterns[] = {"/usr/bin/curl", "/usr/bin/node", "**/curl", "/opt/*", "/opt/**", "/usr/bin/*"};
inline constexpr const char* kProtocols[] = {"", "rest", "rest", "graphql", "websocket", "json-rpc", "mcp", "mcp", "tcp", "sql"};
inline constexpr const char* kTypes[] = {"query", "mutation", "subscription"};
inline constexpr const char* kNames[] = {"a", "a.b", "b", "ab"};
inline constexpr const char* kNamePatterns[] = {"a", "*", "**", "a.*", "*b", "a*"};
inline constexpr const char* kCalls[] = {"tools/call", "tools/list", "ping", "x/y"};
inline constexpr const char* kCallRules[] = {"tools/call", "tools/*", "ping", "x/y", "*"};

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : dice_{seed} {}

  pb::SandboxPolicy policy() {
    pb::SandboxPolicy out;
    // Crowded ones go by way of the index by program and path.
    const bool crowded = dice_.chance(10);
    const auto rules = crowded ? 20 + dice_.below(30) : 1 + dice_.below(4);
    for (std::size_t i = 0; i < rules; ++i) {
      auto& rule = (*out.mutable_network_policies())[std::string{dice_.chance(20) ? "_provider_" : "r"} + std::to_string(i)];
      const auto endpoints = 1 + dice_.below(3);
      for (std::size_t k = 0; k < endpoints; ++k) endpoint(*rule.add_endpoints());
      const auto binaries = dice_.below(3);
      for (std::size_t k = 0; k < binaries; ++k) rule.add_binaries()->set_path(dice_.pick(kBinaryPatterns));
    }
    normalize(out, Provenance::keep);
    return out;
  }

  plain::Question question() {
    plain::Question out;
    out.host = dice_.pick(kHosts);
    out.port = dice_.chance(80) ? 443 : 80;
    out.binary = dice_.pick(kBinaries);
    if (dice_.chance(40)) out.ancestors = {dice_.pick(kBinaries), "/sbin/init"};
    out.method = dice_.pick(kMethods);
    out.path = dice_.pick(kPaths);
    const auto parameters = dice_.below(3);
    for (std::size_t i = 0; i < parameters; ++i) out.query.emplace_back(dice_.chance(70) ? "q" : "r", dice_.pick(kNames));
    graphql_ = {};
    const auto operations = dice_.below(3);
    for (std::size_t i = 0; i < operations; ++i) graphql_.operations.push_back(operation());
    if (dice_.chance(5)) graphql_.error = "broken";
    rpc_ = {};
    if (dice_.chance(85)) rpc_.method = dice_.chance(95) ? dice_.pick(kCalls) : "";
    rpc_.classification = dice_.chance(70) ? McpMethod::available : McpMethod::extension;
    if (rpc_.method == "tools/call" || dice_.chance(10)) rpc_.params.emplace("name", dice_.pick(kNames));
    rpc_.has_response = !rpc_.method && dice_.chance(50);
    rpc_.receive_stream = !rpc_.method && !rpc_.has_response && dice_.chance(70);
    if (dice_.chance(5)) rpc_.error = "broken";
    out.graphql = &graphql_;
    out.jsonrpc = &rpc_;
    return out;
  }

 private:
  template <class Rule>
  void http(Rule& rule) {
    if (dice_.chance(80)) rule.set_method(dice_.pick(kMethodRules));
    if (dice_.chance(70)) rule.set_path(dice_.pick(kPathPatterns));
    if (dice_.chance(30)) matcher((*rule.mutable_query())["q"]);
  }
  void matcher(pb::L7QueryMatcher& out) {
    if (dice_.chance(60)) {
      out.set_glob(dice_.pick(kNamePatterns));
    } else {
      for (int i = 0; i < 2; ++i) out.add_any(dice_.pick(kNamePatterns));
    }
  }
  template <class Rule>
  void operation_rule(Rule& rule) {
    rule.set_operation_type(dice_.pick(kTypes));
    if (dice_.chance(30)) rule.set_operation_name(dice_.pick(kNamePatterns));
    if (dice_.chance(40)) rule.add_fields(dice_.pick(kNamePatterns));
    if (dice_.chance(20)) rule.add_fields(dice_.pick(kNamePatterns));
  }
  template <class Rule>
  void call_rule(Rule& rule, const pb::NetworkEndpoint& e) {
    if (dice_.chance(85) || !e.mcp().allow_all_known_mcp_methods()) rule.set_method(dice_.pick(kCallRules));
    if (e.protocol() == "mcp" && dice_.chance(40)) matcher((*rule.mutable_params())["name"]);
  }
  template <class Rule>
  void any_rule(Rule& rule, const pb::NetworkEndpoint& e) {
    const auto& protocol = e.protocol();
    if (protocol == "json-rpc" || protocol == "mcp") {
      call_rule(rule, e);
    } else if (protocol == "graphql" || (protocol == "websocket" && dice_.chance(40))) {
      operation_rule(rule);
    } else {
      http(rule);
    }
  }
  void endpoint(pb::NetworkEndpoint& e) {
    e.set_host(dice_.pick(kHostPatterns));
    e.add_ports(443);
    if (dice_.chance(30)) e.add_ports(80);
    e.set_protocol(dice_.pick(kProtocols));
    e.set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
    if (dice_.chance(10)) e.set_tls(pb::NETWORK_TLS_MODE_SKIP);
    if (dice_.chance(10)) e.set_advisor_proposed(true);
    if (dice_.chance(40)) e.set_path(dice_.pick(kPathPatterns));
    if (e.protocol() == "mcp" && dice_.chance(30)) e.mutable_mcp()->set_allow_all_known_mcp_methods(true);
    const bool rpc = e.protocol() == "json-rpc" || e.protocol() == "mcp";
    if (!rpc && dice_.chance(40)) {
      e.set_access(static_cast<pb::NetworkAccessPreset>(1 + dice_.below(3)));
    } else {
      const auto rules = 1 + dice_.below(dice_.chance(10) ? 20 : 3);  // many: the index by path is used
      for (std::size_t i = 0; i < rules; ++i) any_rule(*e.add_rules()->mutable_allow(), e);
    }
    const auto denies = dice_.chance(30) ? 1 + dice_.below(2) : 0;
    for (std::size_t i = 0; i < denies; ++i) any_rule(*e.add_deny_rules(), e);
    if (e.protocol() == "graphql" && dice_.chance(30)) {
      e.set_persisted_queries("allow_registered");
      (*e.mutable_graphql_persisted_queries())["h"].set_operation_type(dice_.pick(kTypes));
    }
  }
  GraphqlOperation operation() {
    GraphqlOperation out;
    if (dice_.chance(15)) {
      out.persisted = true;
      out.persisted_hash = dice_.chance(70) ? "h" : "unknown";
      return out;
    }
    out.type = dice_.pick(kTypes);
    if (dice_.chance(50)) out.name = dice_.pick(kNames);
    const auto fields = dice_.below(3);
    for (std::size_t i = 0; i < fields; ++i) out.fields.emplace_back(dice_.pick(kNames));
    return out;
  }

  Dice dice_;
  GraphqlContent graphql_;
  JsonRpcContent rpc_;
};

/// OPENSHELL_PROPERTY_ROUNDS, else `usual`.
inline std::uint64_t rounds(std::uint64_t usual = 20'000) {
  const char* wanted = std::getenv("OPENSHELL_PROPERTY_ROUNDS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : usual;
}

}  // namespace openshell::policy::random_policies
