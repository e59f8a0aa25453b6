// Rules of somebody's own over the endpoints of a policy.
#include "policy/rules_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::HasSubstr;

constexpr auto kData = R"(version: 1
network_policies:
  api:
    endpoints:
      - {host: api.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: GET, path: "/**"}}]}
      - {host: audit.test, port: 443, protocol: rest, enforcement: audit, rules: [{allow: {method: GET, path: "/**"}}]}
    binaries: [/usr/bin/curl]
)";

std::string rules(const std::string& more) { return "package openshell.sandbox\nimport rego.v1\n" + more; }

/// Allows every listed host, with its endpoints; requests as `requests` says.
std::string open_rules(const std::string& requests) {
  return rules(R"(
eps := [ep | some name; ep := data.network_policies[name].endpoints[_]; ep.host == input.network.host]
egress_authorization := {"action": "allow", "deny_reason": "", "matched_policy": "api", "endpoint_configs": eps, "matched_endpoints": [],
  "exact_declared_endpoint_host": true} if eps != []
egress_authorization := {"action": "deny", "deny_reason": "not today", "matched_policy": "", "endpoint_configs": [], "matched_endpoints": [],
  "exact_declared_endpoint_host": false} if eps == []
)" + requests);
}

struct RulesFileTest : testing::Test {
  ParseResult parsed = load_policy(kData, "data.yaml");
  std::shared_ptr<const Matcher> plain = *Matcher::compile(*parsed.policy, {.require_binary_identity = false});

  absl::StatusOr<std::shared_ptr<const Matcher>> with(const std::string& source) {
    auto arbiter = load_rules_file(source, "rules.rego", *plain);
    if (!arbiter.ok()) return arbiter.status();
    return Matcher::compile(*parsed.policy, {.require_binary_identity = false, .arbiter = *arbiter});
  }
  std::string refusal(const std::string& source) { return std::string{with(source).status().message()}; }
};

TEST_F(RulesFileTest, NP_07_TheRulesAloneDecide) {
  const auto matcher = with(open_rules("allow_request if input.request.path == \"/ok\"\nrequest_deny_reason := \"only /ok\"\n"));
  ASSERT_TRUE(matcher.ok()) << matcher.status();
  const auto open = (*matcher)->connect({"api.test", 443, {}});
  ASSERT_TRUE(open.allowed) << open.reason;
  EXPECT_EQ(open.policy, "api");
  EXPECT_EQ(open.inspection, Inspection::requests);
  EXPECT_TRUE(open.exact_declared_host);
  EXPECT_EQ(open.request({"POST", "/ok", {}}).verdict, Verdict::allow) << "the data's own rules say GET, and are not asked";
  const auto denied = open.request({"GET", "/other", {}});
  EXPECT_EQ(denied.verdict, Verdict::deny);
  EXPECT_EQ(denied.reason, "only /ok");
  const auto audited = (*matcher)->connect({"audit.test", 443, {}});
  EXPECT_EQ(audited.request({"GET", "/other", {}}).verdict, Verdict::audit);
  EXPECT_EQ((*matcher)->connect({"other.test", 443, {}}).reason, "not today");
}

constexpr auto kMixed = R"(version: 1
network_policies:
  api:
    endpoints:
      - {host: a.api.test, port: 443}
      - {host: "*.api.test", port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: GET, path: "/**"}}]}
    binaries: [/usr/bin/curl]
)";

TEST_F(RulesFileTest, AnEndpointThatInspectsIsSeenWhereverTheRulesPutIt) {
  parsed = load_policy(kMixed, "data.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.diagnostics.render();
  plain = *Matcher::compile(*parsed.policy, {.require_binary_identity = false});
  const auto matcher = with(rules(
      "egress_authorization := {\"action\": \"allow\", \"deny_reason\": \"\", \"matched_policy\": \"api\",\n"
      "  \"endpoint_configs\": data.network_policies.api.endpoints, \"matched_endpoints\": [], \"exact_declared_endpoint_host\": false}\n"
      "allow_request if false\n"));
  ASSERT_TRUE(matcher.ok()) << matcher.status();
  const auto open = (*matcher)->connect({"a.api.test", 443, {}});
  ASSERT_TRUE(open.allowed) << open.reason;
  EXPECT_EQ(open.inspection, Inspection::requests);
  EXPECT_EQ(open.request({"GET", "/", {}}).verdict, Verdict::deny);
}

TEST_F(RulesFileTest, AnUndefinedAnswerDenies) {
  const auto matcher = with(rules("egress_authorization := {} if false\nallow_request if false\n"));
  ASSERT_TRUE(matcher.ok()) << matcher.status();
  const auto open = (*matcher)->connect({"api.test", 443, {}});
  EXPECT_FALSE(open.allowed);
  EXPECT_EQ(open.reason, "network connections not allowed by policy");
}

TEST_F(RulesFileTest, WhateverGoesWrongDeniesUnderAuditToo) {
  for (const auto* requests : {"allow_request := 1\n", "allow_request := x if { x := [1, 2][_]; x > 0 }\n",
                               "allow_request if false\nrequest_deny_reason := 7\n"}) {
    const auto matcher = with(open_rules(requests));
    ASSERT_TRUE(matcher.ok()) << matcher.status();
    const auto audited = (*matcher)->connect({"audit.test", 443, {}});
    ASSERT_TRUE(audited.allowed);
    const auto answer = audited.request({"GET", "/", {}});
    EXPECT_EQ(answer.verdict, Verdict::deny) << requests;
    EXPECT_THAT(answer.reason, HasSubstr("policy evaluation error: ")) << requests;
  }
}

TEST_F(RulesFileTest, AnAnswerOfAnotherShapeDenies) {
  const std::string good =
      R"("deny_reason": "", "matched_policy": "", "endpoint_configs": [], "matched_endpoints": [], "exact_declared_endpoint_host": false)";
  const std::vector<std::string> answers{
      "{\"action\": \"maybe\", " + good + "}", "{\"action\": \"allow\"}", "7", "{\"action\": \"allow\", \"more\": 1, " + good + "}",
      R"({"action": "allow", "deny_reason": "", "matched_policy": "", "endpoint_configs": [{"host": "made.up"}], "matched_endpoints": [], "exact_declared_endpoint_host": false})"};
  for (const auto& answer : answers) {
    const auto matcher = with(rules("egress_authorization := " + answer + "\nallow_request if true\n"));
    ASSERT_TRUE(matcher.ok()) << matcher.status();
    const auto open = (*matcher)->connect({"api.test", 443, {}});
    EXPECT_FALSE(open.allowed) << answer;
    EXPECT_THAT(open.reason, HasSubstr("policy evaluation error: ")) << answer;
  }
}

TEST_F(RulesFileTest, WhatIsNoSuchFileIsRefusedWithItsPlace) {
  EXPECT_EQ(refusal("package other\nallow_request := true\n"), "policy rules rules.rego: package must be openshell.sandbox");
  EXPECT_EQ(refusal(rules("egress_authorization := {}\n")), "policy rules rules.rego: missing rule allow_request");
  EXPECT_EQ(refusal(rules("allow_request := true\n")), "policy rules rules.rego: missing rule egress_authorization");
  EXPECT_THAT(refusal("package openshell.sandbox\n\nallow_request := {\n"), HasSubstr("rules.rego:"));
  EXPECT_THAT(refusal(open_rules("allow_request if allow_request\n")), HasSubstr("rego_recursion_error"));
  EXPECT_THAT(refusal(open_rules("allow_request if no.such.function(1)\n")), HasSubstr("rules.rego:"));
  EXPECT_THAT(refusal(std::string(kMaxRulesFileBytes + 1, ' ')), HasSubstr("larger than 1 MiB"));
}

TEST_F(RulesFileTest, AnEndlessEvaluationDenies) {
  const auto matcher =
      with(open_rules("n := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
                      "allow_request if { n[_] + n[_] + n[_] + n[_] + n[_] + n[_] + n[_] + n[_] == 81 }\n"));
  ASSERT_TRUE(matcher.ok()) << matcher.status();
  const auto answer = (*matcher)->connect({"audit.test", 443, {}}).request({"GET", "/", {}});
  EXPECT_EQ(answer.verdict, Verdict::deny);
  EXPECT_THAT(answer.reason, HasSubstr("limit exceeded: steps"));
}

}  // namespace
}  // namespace openshell::policy
