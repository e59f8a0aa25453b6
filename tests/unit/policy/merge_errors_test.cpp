// Every error of a merge operation: its code, its words, and that nothing of the batch is applied.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "openshell.pb.h"
#include "policy/merge.hpp"
#include "policy/parse.hpp"

namespace openshell::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

MergeOperations operations(const std::string& text) {
  openshell::v1::UpdateConfigRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request.merge_operations();
}

pb::SandboxPolicy policy(const std::string& rules) {
  auto loaded = load_policy("version: 1\nnetwork_policies:\n" + rules);
  EXPECT_TRUE(loaded.ok()) << loaded.diagnostics.render();
  return loaded.ok() ? *loaded.policy : pb::SandboxPolicy{};
}

const std::string kRules =
    "  gh: {binaries: [/a, /b], endpoints: [{host: x.test.example, port: 443, protocol: rest, access: read-only, path: ''},\n"
    "                                       {host: x.test.example, port: 443, protocol: rest, access: read-only, path: /x}]}\n"
    "  two: {binaries: [/a], endpoints: [{host: y.test.example, ports: [443, 8443], protocol: rest, access: read-only}]}\n"
    "  any: {endpoints: [{host: z.test.example, port: 443, protocol: rest, access: read-only}]}\n"
    "  plain: {binaries: [/a], endpoints: [{host: l4.test.example, port: 443}]}\n"
    "  graph: {binaries: [/a], endpoints: [{host: g.test.example, port: 443, protocol: graphql, access: read-only}]}\n"
    "  tool: {binaries: [/a], endpoints: [{host: m.test.example, port: 443, protocol: mcp, enforcement: enforce, rules: [{allow: {method: "
    "a}}]}]}\n";

const std::string kAllow = "rules { allow { method: 'POST' path: '/y' } }";

struct Case {
  const char* name;
  std::string operation;
  absl::StatusCode code;
  const char* text;
};

std::string allow(const std::string& target) { return "merge_operations { add_allow_rules { " + kAllow + " target { " + target + " } } }"; }
std::string deny(const std::string& target) {
  return "merge_operations { add_deny_rules { deny_rules { method: 'POST' } target { " + target + " } } }";
}

const auto kInvalid = absl::StatusCode::kInvalidArgument;
const auto kRefused = absl::StatusCode::kFailedPrecondition;
const auto kMissing = absl::StatusCode::kNotFound;

class MergeErrors : public testing::TestWithParam<Case> {};

TEST_P(MergeErrors, HasItsCodeAndItsWords) {
  const auto merged = merge(policy(kRules), operations(GetParam().operation));
  ASSERT_FALSE(merged.ok());
  EXPECT_EQ(merged.status().code(), GetParam().code) << merged.status();
  EXPECT_EQ(std::string{merged.status().message()}, GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(
    Of, MergeErrors,
    testing::Values(
        Case{"NoOperation", "merge_operations { }", kInvalid, "merge_operations[0] is missing an operation"},
        Case{"NoName", "merge_operations { add_rule { rule { endpoints { host: 'q.test.example' port: 1 } } } }", kInvalid,
             "merge_operations[0].add_rule.rule_name is required"},
        Case{"NoEndpoint", "merge_operations { add_rule { rule_name: 'n' rule { } } }", kInvalid,
             "merge_operations[0].add_rule.rule must contain at least one endpoint"},
        Case{"Reserved", "merge_operations { add_rule { rule_name: '_provider_x' rule { endpoints { host: 'q.test.example' port: 1 } } } }",
             kInvalid, "merge operation add_rule rule_name '_provider_x' uses reserved '_provider_' prefix for provider composition"},
        Case{"RemoveEndpointWithoutPort", "merge_operations { remove_endpoint { host: 'q.test.example' } }", kInvalid,
             "merge_operations[0].remove_endpoint requires host and non-zero port"},
        Case{"RemoveEndpointPort", "merge_operations { remove_endpoint { host: 'q.test.example' port: 65536 } }", kInvalid,
             "invalid endpoint reference 'q.test.example:65536'"},
        Case{"RemoveRule", "merge_operations { remove_rule { } }", kInvalid, "merge_operations[0].remove_rule.rule_name is required"},
        Case{"NoDeny", "merge_operations { add_deny_rules { } }", kInvalid,
             "merge_operations[0].add_deny_rules requires at least one deny rule"},
        Case{"NoAllow", "merge_operations { add_allow_rules { } }", kInvalid,
             "merge_operations[0].add_allow_rules requires at least one allow rule"},
        Case{"EmptyAllow", "merge_operations { add_allow_rules { rules { } } }", kInvalid,
             "merge_operations[0].add_allow_rules rules must include allow payloads"},
        Case{"NoTarget", "merge_operations { add_allow_rules { " + kAllow + " } }", kInvalid, "merge_operations[0] requires an L7 target"},
        Case{"NeitherBinaries", allow("rule_name: 'gh' host: 'x.test.example' ports: 443"), kInvalid,
             "merge_operations[0].target requires exactly one of any_binary=true or nonempty binaries"},
        Case{"BothBinaries", allow("rule_name: 'gh' host: 'x.test.example' ports: 443 any_binary: true binaries { path: '/a' }"), kInvalid,
             "merge_operations[0].target requires exactly one of any_binary=true or nonempty binaries"},
        Case{"PaddedName", allow("rule_name: ' gh' host: 'x.test.example' ports: 443 any_binary: true"), kInvalid,
             "merge operation 0 has an invalid L7 target: rule_name must name a sandbox-owned rule"},
        Case{"ProviderRule", allow("rule_name: '_provider_x' host: 'x.test.example' ports: 443 any_binary: true"), kInvalid,
             "merge operation 0 has an invalid L7 target: provider-owned rules cannot receive L7 appends"},
        Case{"HostWithSlash", allow("rule_name: 'gh' host: 'x.test.example/a' ports: 443 any_binary: true"), kInvalid,
             "merge operation 0 has an invalid L7 target: host must be a nonempty endpoint host selector"},
        Case{"HostWildcard", allow("rule_name: 'gh' host: 'x.*.*.example*' ports: 443 any_binary: true"), kInvalid,
             "merge operation 0 has an invalid L7 target: host must be a nonempty endpoint host selector"},
        Case{"PortZero", allow("rule_name: 'gh' host: 'x.test.example' ports: 0 any_binary: true"), kInvalid,
             "merge operation 0 has an invalid L7 target: ports must declare a nonempty set in 1..=65535"},
        Case{"NoPorts", allow("rule_name: 'gh' host: 'x.test.example' any_binary: true"), kInvalid,
             "merge operation 0 has an invalid L7 target: ports must declare a nonempty set in 1..=65535"},
        Case{"EmptyBinary", allow("rule_name: 'gh' host: 'x.test.example' ports: 443 binaries { path: '' }"), kInvalid,
             "merge operation 0 has an invalid L7 target: restricted binary scope must contain nonempty binary paths; use Any for an "
             "any-binary rule"},
        Case{"BlockedHost", allow("rule_name: 'gh' host: 'localhost' ports: 443 any_binary: true"), kInvalid,
             "proposed rule endpoint host 'localhost' is always blocked; the proxy will deny traffic to loopback regardless of policy"},
        Case{"RemoveBinary", "merge_operations { remove_binary { rule_name: 'gh' } }", kInvalid,
             "merge_operations[0].remove_binary requires rule_name and binary_path"},
        Case{"RemoveFromAny", "merge_operations { remove_binary { rule_name: 'any' binary_path: '/a' } }", kRefused,
             "merge operation 0 cannot remove binary '/a' from rule 'any' because the rule authorizes any binary; replace the policy with "
             "an "
             "explicit binary list or remove the rule"},
        Case{"UnknownRule", allow("rule_name: 'none' host: 'x.test.example' ports: 443 any_binary: true"), kMissing,
             "L7 target in rule 'none' for x.test.example on ports [443] with endpoint path None was not found"},
        Case{"UnknownPath", allow("rule_name: 'gh' host: 'x.test.example' ports: 443 path: '/z' any_binary: true"), kMissing,
             "L7 target in rule 'gh' for x.test.example on ports [443] with endpoint path Some(\"/z\") was not found"},
        Case{"Ambiguous", allow("rule_name: 'gh' host: 'x.test.example' ports: 443 binaries { path: '/a' } binaries { path: '/b' }"),
             kRefused,
             "L7 target in rule 'gh' for x.test.example on ports [443] matches endpoint paths [\"\", \"/x\"]; declare the exact endpoint "
             "path"},
        Case{"BinaryScope", allow("rule_name: 'gh' host: 'x.test.example' ports: 443 path: '/x' binaries { path: '/a' }"), kRefused,
             "L7 target in rule 'gh' declares binary scope [\"/a\"], but the append affects [\"/a\", \"/b\"]; declare the complete binary "
             "scope"},
        Case{"AnyOnRestricted", allow("rule_name: 'two' host: 'y.test.example' ports: [443, 8443] any_binary: true"), kRefused,
             "L7 target in rule 'two' declares binary scope [\"any binary\"], but the append affects [\"/a\"]; declare the complete binary "
             "scope"},
        Case{"PortScope", allow("rule_name: 'two' host: 'y.test.example' ports: 443 binaries { path: '/a' }"), kRefused,
             "L7 target in rule 'two' for y.test.example declares ports [443], but the append affects [443, 8443]; declare the complete "
             "endpoint "
             "port set"},
        Case{"NoInspection", allow("rule_name: 'plain' host: 'l4.test.example' ports: 443 binaries { path: '/a' }"), kRefused,
             "endpoint l4.test.example:443 has no L7 inspection configured (protocol is empty)"},
        Case{"Protocol", allow("rule_name: 'graph' host: 'g.test.example' ports: 443 binaries { path: '/a' }"), kRefused,
             "endpoint g.test.example:443 uses unsupported protocol 'graphql'; this operation currently supports only protocol 'rest' or "
             "'websocket'"},
        Case{"McpBesideRest",
             "merge_operations { add_rule { rule_name: 'n' rule { binaries { path: '/c' } endpoints { host: 'm.test.example' port: 443 "
             "path: '/r' "
             "protocol: 'rest' access: NETWORK_ACCESS_PRESET_FULL } } } }",
             kRefused,
             "m.test.example:443 would carry more than one L7 inspection contract (mcp(versions=[\"2025-11-25\"], strict_tool_names=true, "
             "allow_all_known_mcp_methods=false, max_body_bytes=65536), non-mcp(protocol='rest')); the sandbox resolves one contract per "
             "host "
             "and port, so these cannot coexist even in different rules or under different paths"}),
    [](const auto& one) { return std::string{one.param.name}; });

TEST(MergeTarget, OrderAndDuplicatesOfBinariesAndPortsDoNotMatter) {
  const auto merged =
      merge(policy(kRules), operations(allow("rule_name: 'two' host: 'Y.test.example' ports: [8443, 443, 443] binaries { path: "
                                             "'/a' } binaries { path: '/a' }")));
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->warnings, ElementsAre("expanded access preset 'read-only' to explicit rules for endpoint Y.test.example:8443"));
  const auto unscoped =
      merge(policy(kRules), operations(allow("rule_name: 'gh' host: 'x.test.example' ports: 443 path: '' binaries { path: '/b' "
                                             "} binaries { path: '/a' }")));
  ASSERT_TRUE(unscoped.ok()) << unscoped.status();
  EXPECT_EQ(unscoped->policy.network_policies().at("gh").endpoints(1).rules_size(), 0) << "the other endpoint is as it was";
}

TEST(MergeTarget, ADenyRuleNeedsSomethingThatIsAllowed) {
  auto base = policy("  r: {binaries: [/a], endpoints: [{host: x.test.example, port: 443, protocol: rest, access: full}]}\n");
  EXPECT_TRUE(merge(base, operations(deny("rule_name: 'r' host: 'x.test.example' ports: 443 binaries { path: '/a' }"))).ok());
}

TEST(MergeRefusals, AnInvalidCurrentPolicyIsSaid) {
  pb::SandboxPolicy base;
  base.set_version(1);
  (*base.mutable_network_policies())["r"].add_endpoints()->set_host("x.test.example");
  const auto merged = merge(base, operations("merge_operations { remove_rule { rule_name: 'r' } }"));
  EXPECT_EQ(merged.status().code(), kRefused);
  EXPECT_THAT(std::string{merged.status().message()}, HasSubstr("current policy is invalid; "));
}

TEST(MergeRefusals, AnInvalidFragmentIsSaidWithItsOperation) {
  const auto merged =
      merge(policy(kRules), operations("merge_operations { remove_rule { rule_name: 'none' } } merge_operations { add_rule { "
                                       "rule_name: 'n' rule { endpoints { host: 'q.test.example' port: 1 protocol: 'gopher' } } } }"));
  EXPECT_EQ(merged.status().code(), kInvalid);
  EXPECT_THAT(std::string{merged.status().message()}, HasSubstr("merge operation 1 carries an invalid policy rule; "));
}

TEST(MergeRefusals, WhatIsAlreadyThereIsNoNewConflict) {
  auto base = policy("  one: {binaries: [/a], endpoints: [{host: x.test.example, port: 443}]}\n");
  const auto merged =
      merge(base, operations("merge_operations { remove_endpoint { host: 'none.test.example' port: 443 } } merge_operations { "
                             "remove_rule { rule_name: 'none' } } merge_operations { remove_binary { rule_name: 'none' "
                             "binary_path: '/a' } }"));
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->policy.network_policies_size(), 1);
  EXPECT_THAT(merged->warnings, IsEmpty());
}

}  // namespace
}  // namespace openshell::policy
