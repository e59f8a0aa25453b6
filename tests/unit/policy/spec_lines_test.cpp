// More of the policy language case by case: what docs/policy-cases.md lists and no other test holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "policy/decision_tests.hpp"
#include "policy/evaluator_data.hpp"
#include "policy/hash.hpp"
#include "policy/matcher.hpp"
#include "policy/normalize.hpp"
#include "policy/parse.hpp"
#include "policy/serialize.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"
#include "tests/unit/policy/random_policies.hpp"

namespace openshell::policy {
namespace {

using testing::HasSubstr;
using testing::Not;
using text::cat;

std::string faults_of(const std::string& yaml) { return load_policy(yaml, "p.yaml").diagnostics.render(); }
std::string with_endpoint(const std::string& members) {
  return cat("version: 1\nnetwork_policies: {api: {endpoints: [{", members, "}], binaries: [/usr/bin/curl]}}\n");
}
std::shared_ptr<const Matcher> compiled(const std::string& yaml) {
  auto loaded = load_policy(yaml);
  EXPECT_TRUE(loaded.ok()) << loaded.diagnostics.render() << yaml;
  auto matcher = Matcher::compile(*loaded.policy);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *matcher;
}
Connection open(const Matcher& matcher, const std::string& host, std::uint16_t port = 443, const std::string& binary = "/usr/bin/curl") {
  return matcher.connect({host, port, {binary, {}, {}}});
}

// A key path is as long as its author likes; what is shown of it ends at a character.
TEST(SpecLines, AKeyOfFourThousandBytesIsShownCutAtACharacter) {
  for (const std::string& key : {std::string(4'000, 'k'), "x" + [] {
                                   std::string out;
                                   for (int i = 0; i < 2'000; ++i) out += "\xc3\xa9";
                                   return out;
                                 }()}) {
    const auto fault = faults_of(cat("version: 1\nnetwork_policies:\n  api:\n    endpoints:\n    - ? ", key, "\n      : 1\n"));
    EXPECT_THAT(fault, HasSubstr("unknown field 'network_policies.api.endpoints[0]."));
    const auto begin = fault.find('\'') + 1, end = fault.find("'", begin);
    const auto shown = fault.substr(begin, end - begin);
    EXPECT_LE(shown.size(), kMaxShownPathBytes + 3);
    EXPECT_GT(shown.size(), kMaxShownPathBytes - 4);
    EXPECT_TRUE(shown.ends_with("..."));
    EXPECT_EQ(shown.substr(0, shown.size() - 3).find_last_of("\xc3"), key[0] == 'k' ? std::string::npos : shown.size() - 5)
        << "no half character";
    EXPECT_LT(fault.size(), 3'000U);
  }
  EXPECT_THAT(faults_of(cat("version: 1\nlandlock: {", std::string(4'000, 'k'), ": 1}\n")), HasSubstr("more than 1024 characters"));
  // A rule may be called that, and everything goes on; what is told of it stays short.
  const std::string name(4'000, 'r');
  const auto good =
      cat("version: 1\nnetwork_policies:\n  ? ", name, "\n  : {endpoints: [{host: a.test, port: 443}], binaries: [/usr/bin/curl]}\n");
  EXPECT_EQ(faults_of(good), "");
  EXPECT_TRUE(open(*compiled(good), "a.test").allowed);
}

TEST(SpecLines, WordsThatAreNoStringsAndModesThatAreNearlyRight) {
  EXPECT_THAT(faults_of("version: 1\nlandlock: {compatibility: besteffort}\n"),
              testing::AllOf(HasSubstr("best_effort"), HasSubstr("hard_requirement")));
  EXPECT_THAT(faults_of("version: 1\nlandlock: {compatibility: hard-requirement}\n"), HasSubstr("hard_requirement"));
  for (const auto* bad : {"host: 443, port: 1", "host: !!str a.test, port: 1", "host: true, port: 1"})
    EXPECT_NE(faults_of(with_endpoint(bad)), "") << bad;
  EXPECT_NE(faults_of("version: 1\nnetwork_policies: {443: {}}\n"), "");
  EXPECT_NE(faults_of("version: 1\nnetwork_policies: {api: {name: true}}\n"), "");
  EXPECT_NE(faults_of("version: 1\nnetwork_policies: &a {x: *a}\n"), "") << "a cycle";
  const auto yes = load_policy("version: 1\nnetwork_policies: {api: {name: yes}}\n");
  ASSERT_TRUE(yes.ok());
  EXPECT_EQ(yes.policy->network_policies().at("api").name(), "yes");
  EXPECT_NE(faults_of(""), "") << "no version";
  EXPECT_NE(faults_of("version: 2\n"), "");
  EXPECT_THAT(faults_of("network_policies: {}\n"), HasSubstr("version"));
}

TEST(SpecLines, McpVersionsAndTheirLimits) {
  const auto mcp = [](const std::string& options) {
    return with_endpoint(
        cat("host: a.x.test, port: 1, protocol: mcp, enforcement: enforce, rules: [{allow: {method: ping}}], mcp: {", options, "}"));
  };
  for (const auto* bad : {"versions: []", "versions: [latest]", "versions: [' 2025-11-25']", "versions: ['2025-11-25', '2025-11-25']",
                          "versions: ['2026-07-28']", "versions: ['2025-11-25+x']"}) {
    EXPECT_NE(faults_of(mcp(bad)), "") << bad;
  }
  const auto ordered = load_policy(mcp("versions: ['2025-11-25', '2025-03-26']"));
  const auto same = load_policy(mcp("versions: ['2025-03-26', '2025-11-25']"));
  ASSERT_TRUE(ordered.ok() && same.ok());
  const auto text = *to_yaml(*ordered.policy);
  EXPECT_LT(text.find("2025-03-26"), text.find("2025-11-25"));
  EXPECT_EQ(policy_hash(*ordered.policy), policy_hash(*same.policy));
}

TEST(SpecLines, RandomCanonicalPoliciesComeBackFromTheirText) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_policies::Maker make{seed};
    auto policy = make.policy();
    for (auto& [key, rule] : *policy.mutable_network_policies()) {
      for (auto& endpoint : *rule.mutable_endpoints()) endpoint.clear_advisor_proposed();
    }
    policy.set_version(1);
    normalize(policy, Provenance::clear);
    // Words that a reader of YAML likes to take for something else.
    const char* kOdd[] = {"yes", "0x1f", "~", " a", "1e3", "null", "a: b", "#x", "'", "\"", "\xc3\xa9", "-", "[", "{}", "true"};
    (*policy.mutable_network_policies())["odd"].set_name(kOdd[seed % std::size(kOdd)]);
    const auto text = to_yaml(policy);
    ASSERT_TRUE(text.ok()) << text.status();
    auto parsed = parse_policy(*text);
    ASSERT_TRUE(parsed.ok()) << parsed.diagnostics.render() << *text;
    normalize(*parsed.policy, Provenance::clear);
    EXPECT_EQ(canonical_bytes(*parsed.policy), canonical_bytes(policy)) << *text;
  }
}

TEST(SpecLines, TwoPathsOnOneHostAndARuleThatCoversLess) {
  const auto matcher = compiled(
      with_endpoint("host: a.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: GET, path: '/v1/*'}}]"));
  const auto connection = open(*matcher, "a.test");
  EXPECT_EQ(connection.request({"GET", "/v1/admin", {}}).verdict, Verdict::allow);
  EXPECT_EQ(connection.request({"GET", "/v1/admin/x", {}}).verdict, Verdict::deny) << "a star stays in its segment";
  const auto all = compiled(with_endpoint("host: a.test, port: 443, path: '/v1/**', protocol: rest, enforcement: enforce, access: full"));
  EXPECT_EQ(open(*all, "a.test").request({"GET", "/v1", {}}).verdict, Verdict::deny);
  EXPECT_EQ(open(*all, "a.test").request({"GET", "/v1/x", {}}).verdict, Verdict::allow);
}

TEST(SpecLines, MethodsDenyRulesAndEverybodyElse) {
  const auto rest = [](const std::string& rules) {
    return with_endpoint(cat("host: a.test, port: 443, protocol: rest, enforcement: enforce, ", rules));
  };
  const auto ask = [&](const std::string& rules, const std::string& method, const std::string& path) {
    return open(*compiled(rest(rules)), "a.test").request({method, path, {}}).verdict == Verdict::allow;
  };
  EXPECT_TRUE(ask("rules: [{allow: {method: GET, path: /**}}]", "HEAD", "/x"));
  EXPECT_FALSE(ask("rules: [{allow: {method: GET, path: /**}}]", "OPTIONS", "/x"));
  EXPECT_FALSE(ask("access: full, deny_rules: [{method: GET, path: /**}]", "HEAD", "/x"));
  for (const auto* method : {"GET", "DELETE", "OPTIONS", "MADEUP"}) {
    EXPECT_FALSE(ask("access: full, deny_rules: [{path: '/admin/**'}]", method, "/admin/x")) << method;
    EXPECT_TRUE(ask("access: full, deny_rules: [{path: '/admin/**'}]", method, "/other")) << method;
  }
  EXPECT_FALSE(ask("access: full, deny_rules: [{method: DELETE}]", "DELETE", "/any/where"));
  EXPECT_TRUE(ask("access: full, deny_rules: [{method: DELETE}]", "GET", "/any/where"));
}

TEST(SpecLines, BinariesOfEveryPattern) {
  const auto with = [](const std::string& binary) {
    return compiled(cat("version: 1\nnetwork_policies: {api: {endpoints: [{host: a.test, port: 443}], binaries: ['", binary, "']}}\n"));
  };
  EXPECT_TRUE(open(*with("/**"), "a.test", 443, "/opt/x/y").allowed);
  EXPECT_FALSE(open(*with("/usr/bin/*"), "a.test", 443, "/usr/bin/sub/x").allowed);
  EXPECT_TRUE(open(*with("/usr/bin/*"), "a.test", 443, "/usr/bin/x").allowed);
}

// An endpoint of an advisor never borrows the name of another rule, nor does another rule's program.
TEST(SpecLines, ANameIsDeclaredByTheRuleThatAdmitsTheProgram) {
  const auto exact = [](const std::string& binary) {
    const auto matcher =
        compiled(cat("version: 1\nnetwork_policies:\n  a: {endpoints: [{host: '*.x.test', port: 443}], binaries: [/usr/bin/curl]}\n",
                     "  b: {endpoints: [{host: api.x.test, port: 443}], binaries: [/usr/bin/node]}\n"));
    return open(*matcher, "api.x.test", 443, binary).exact_declared_host;
  };
  EXPECT_FALSE(exact("/usr/bin/curl")) << "only another rule with other programs names it";
  EXPECT_TRUE(exact("/usr/bin/node"));
}

TEST(SpecLines, DisjointPortsAndAddressesInAnyOrderAreNoAmbiguity) {
  const auto two = [](const std::string& a, const std::string& b) {
    return faults_of(cat("version: 1\nnetwork_policies:\n  a: {endpoints: [{", a, "}], binaries: [/usr/bin/curl]}\n  b: {endpoints: [{", b,
                         "}], binaries: [/usr/bin/curl]}\n"));
  };
  EXPECT_EQ(two("host: a.test, port: 443, protocol: rest, access: full", "host: a.test, port: 8443, protocol: websocket, access: full"),
            "");
  EXPECT_EQ(two("host: a.test, port: 443, allowed_ips: [10.0.0.1, 10.0.0.2]", "host: a.test, port: 443, allowed_ips: [10.0.0.2, 10.0.0.1]"),
            "");
  EXPECT_NE(two("host: a.test, port: 443, allowed_ips: [10.0.0.1]", "host: a.test, port: 443, allowed_ips: [10.0.0.2]"), "");
  EXPECT_NE(two("host: a.test, port: 443, protocol: sql, access: full", "host: a.test, port: 443, protocol: rest, access: full"), "");
  EXPECT_EQ(two("host: a.test, port: 443, protocol: sql, access: full", "host: a.test, port: 443, protocol: tcp"), "");
}

// The hash says whether a policy means something else, not how it was written.
TEST(SpecLines, WhatTheHashSees) {
  const auto hash = [](const std::function<void(pb::NetworkEndpoint&)>& change) {
    auto loaded = load_policy(with_endpoint("host: a.test, port: 443, protocol: mcp, rules: [{allow: {method: ping}}]"));
    auto& endpoint = *(*loaded.policy->mutable_network_policies())["api"].mutable_endpoints(0);
    change(endpoint);
    normalize(*loaded.policy, Provenance::clear);
    return policy_hash(*loaded.policy);
  };
  const auto plain = hash([](auto&) {});
  EXPECT_NE(hash([](auto& e) { e.mutable_mcp()->set_strict_tool_names(false); }), plain) << "an explicit false is not an absent one";
  EXPECT_EQ(hash([](auto& e) { e.set_advisor_proposed(true); }), plain) << "a client's marker is cleared";
}

}  // namespace
}  // namespace openshell::policy
