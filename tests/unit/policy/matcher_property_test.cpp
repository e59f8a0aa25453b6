// Random policies and requests: the compiled matcher answers as the plainly written rules do. A second engine of rules is compared in the
// same way, over evaluator_data and evaluator_input. (BIN-26, NET-58)
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "policy/evaluator_data.hpp"
#include "policy/evaluator_input.hpp"
#include "policy/glob.hpp"
#include "policy/matcher.hpp"
#include "policy/normalize.hpp"
#include "policy/serialize.hpp"
#include "tests/unit/policy/plain_rules.hpp"

namespace openshell::policy {
namespace {

// Picks from short lists, so that things meet often.
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

constexpr const char* kHosts[] = {"a.x.test", "b.x.test", "a.y.x.test", "ab.x.test", "host.docker.internal"};
constexpr const char* kHostPatterns[] = {"a.x.test",  "*.x.test", "**.x.test",  "a*.x.test",
                                         "*b.x.test", "a.*.test", "*.*.x.test", "B.x.test"};
constexpr const char* kPaths[] = {"/", "/v1", "/v1/", "/v1/a", "/v1/a/b", "/w", "/w/ab"};
constexpr const char* kPathPatterns[] = {"", "**", "/**", "/v1", "/v1/*", "/v1/**", "/**/b", "/w/a*", "/*", "/v1/a"};
constexpr const char* kMethods[] = {"GET", "POST", "HEAD", "DELETE", "WEBSOCKET_TEXT"};
constexpr const char* kMethodRules[] = {"GET", "POST", "*", "get", "WEBSOCKET_TEXT"};
constexpr const char* kBinaries[] = {"/usr/bin/curl", "/usr/bin/node", "/opt/a/b"};
constexpr const char* kBinaryPatterns[] = {"/usr/bin/curl", "/usr/bin/node", "**/curl", "/opt/*", "/opt/**", "/usr/bin/*"};
constexpr const char* kProtocols[] = {"", "rest", "rest", "graphql", "websocket", "json-rpc", "mcp", "mcp", "tcp", "sql"};
constexpr const char* kTypes[] = {"query", "mutation", "subscription"};
constexpr const char* kNames[] = {"a", "a.b", "b", "ab"};
constexpr const char* kNamePatterns[] = {"a", "*", "**", "a.*", "*b", "a*"};
constexpr const char* kCalls[] = {"tools/call", "tools/list", "ping", "x/y"};
constexpr const char* kCallRules[] = {"tools/call", "tools/*", "ping", "x/y", "*"};

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

std::uint64_t rounds() {
  const char* wanted = std::getenv("OPENSHELL_PROPERTY_ROUNDS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 20'000;
}

TEST(MatcherProperty, BIN_26_TheCompiledMatcherAnswersAsThePlainRules) {
  constexpr std::uint64_t kQuestionsAPolicy = 10;
  std::uint64_t allowed = 0, refused = 0;
  for (std::uint64_t seed = 0; seed * kQuestionsAPolicy < rounds(); ++seed) {
    Maker make{seed};
    const auto policy = make.policy();
    const auto matcher = Matcher::compile(policy);
    ASSERT_TRUE(matcher.ok()) << matcher.status() << policy.DebugString();
    for (std::uint64_t i = 0; i < kQuestionsAPolicy; ++i) {
      auto q = make.question();
      // Content goes only where somebody would have read it.
      const Destination destination{q.host, static_cast<std::uint16_t>(q.port), {q.binary, q.ancestors, {}}};
      const auto connection = (*matcher)->connect(destination);
      const auto* endpoint = connection.allowed ? connection.deciding_for(q.path) : nullptr;
      const auto protocol = endpoint != nullptr ? endpoint->protocol : Protocol::none;
      const bool rpc = protocol == Protocol::json_rpc || protocol == Protocol::mcp;
      if (protocol != Protocol::graphql && !(endpoint != nullptr && endpoint->graphql_messages && q.method == "WEBSOCKET_TEXT"))
        q.graphql = nullptr;
      if (!rpc) q.jsonrpc = nullptr;
      const auto expected = plain::answer(policy, q);
      const auto describe = [&] {
        const Request request{q.method, q.path, q.query, q.graphql, q.jsonrpc};
        return "seed " + std::to_string(seed) + "\n" + evaluator_input(destination, &request) + "\n" + evaluator_data(**matcher, true);
      };
      ASSERT_EQ(connection.allowed, expected.allow_network) << describe();
      if (!connection.allowed) {
        EXPECT_FALSE(connection.reason.empty());
        continue;
      }
      ASSERT_EQ(connection.policy, expected.matched) << describe();
      ASSERT_EQ(connection.exact_declared_host, expected.exact_host) << describe();
      ASSERT_EQ(connection.deciding != nullptr ? connection.deciding->id() : "", expected.connection_decides) << describe();
      ASSERT_EQ(endpoint != nullptr ? endpoint->id() : "", expected.request_decides) << describe();
      if (connection.inspection == Inspection::raw) continue;
      const auto decision = connection.request({q.method, q.path, q.query, q.graphql, q.jsonrpc});
      ASSERT_EQ(decision.verdict == Verdict::allow, expected.allow_request) << describe();
      ASSERT_EQ(decision.reason.empty(), decision.verdict == Verdict::allow) << describe();
      ++(decision.verdict == Verdict::allow ? allowed : refused);
    }
  }
  EXPECT_GT(allowed, rounds() / 100) << "the generator reaches both answers";
  EXPECT_GT(refused, rounds() / 100);
}

std::string joined(Dice& dice, const std::vector<const char*>& parts, char between, std::size_t most) {
  std::string out;
  const auto count = 1 + dice.below(most);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += between;
    out += parts[dice.below(parts.size())];
  }
  return out;
}

TEST(GlobProperty, L7_45_CompiledPatternsMatchAsTriedOnes) {
  Dice dice{7};
  std::uint64_t matches = 0, overlaps = 0;
  for (std::uint64_t i = 0; i < rounds(); ++i) {
    const auto pattern = "/" + joined(dice, {"a", "b", "ab", "*", "**", "a*", "*b", "**"}, '/', 5);
    const auto other = "/" + joined(dice, {"a", "b", "*", "**", "*b*"}, '/', 4);
    const auto text = "/" + joined(dice, {"a", "b", "ab", "aab"}, '/', 5) + (dice.chance(20) ? "/" : "");
    for (const auto kind : {GlobKind::path, GlobKind::binary}) {
      const auto glob = Glob::compile(pattern, kind);
      const auto second = Glob::compile(other, kind);
      ASSERT_TRUE(glob.ok() && second.ok()) << pattern << " " << other;
      ASSERT_EQ(glob->matches(text), plain::path_matches(pattern, text)) << pattern << " " << text;
      ASSERT_EQ(Glob::overlap(*glob, *second), Glob::overlap(*second, *glob)) << pattern << " " << other;
      if (!glob->matches(text)) continue;
      ++matches;
      if (!second->matches(text)) continue;
      ++overlaps;
      ASSERT_TRUE(Glob::overlap(*glob, *second)) << pattern << " and " << other << " both match " << text;
    }
    const auto host = joined(dice, {"a", "b", "ab"}, '.', 5);
    const auto host_pattern = std::string{dice.chance(30) ? "**." : dice.chance(30) ? "a*." : ""} + joined(dice, {"a", "b", "*"}, '.', 4);
    const auto hosts = Glob::compile(host_pattern, GlobKind::host);
    ASSERT_TRUE(hosts.ok()) << host_pattern;
    ASSERT_EQ(hosts->matches(host), plain::host_matches(host_pattern, host)) << host_pattern << " " << host;
    const auto name_pattern = joined(dice, {"a", "b", "*", "**", "ab"}, dice.chance(50) ? '.' : 'b', 4);
    const auto names = Glob::compile(name_pattern, GlobKind::dotted);
    ASSERT_TRUE(names.ok()) << name_pattern;
    ASSERT_EQ(names->matches(host), plain::name_matches(name_pattern, host)) << name_pattern << " " << host;
  }
  EXPECT_GT(matches, rounds() / 50);
  EXPECT_GT(overlaps, rounds() / 200);
}

}  // namespace
}  // namespace openshell::policy
