// What a changed policy newly makes possible with credentials.
#include "policy/risk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/parse.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

pb::SandboxPolicy policy_of(const std::string& endpoint, const std::string& binaries = "[/usr/bin/curl]") {
  auto result = load_policy("version: 1\nnetwork_policies:\n  r:\n    endpoints: [" + endpoint + "]\n    binaries: " + binaries + "\n");
  EXPECT_TRUE(result.ok()) << result.diagnostics.render();
  return result.ok() ? *result.policy : pb::SandboxPolicy{};
}

const CredentialPlaces kApi{{"api.h.test"}, false};

std::vector<std::string> findings(const std::string& endpoint, const std::string& binaries = "[/usr/bin/curl]",
                                  const CredentialPlaces& credentials = kApi) {
  auto found = new_findings({}, policy_of(endpoint, binaries), credentials);
  EXPECT_TRUE(found.ok()) << found.status();
  return *found;
}

const std::string kReach = "credential_reach_expansion: api.h.test:443 via /usr/bin/curl";

TEST(RiskProver, AReadOnlyInspectedEndpointGivesNothing) {
  EXPECT_THAT(findings("{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}"), IsEmpty());
  EXPECT_THAT(findings("{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: get, path: /v1}}]}"),
              IsEmpty());
  EXPECT_THAT(findings("{host: api.h.test, port: 443, protocol: graphql, enforcement: enforce, rules: [{allow: {operation_type: query}}]}"),
              IsEmpty());
}

TEST(RiskProver, WhatIsNotEnforcedOrNotInspectedReachesTheCredential) {
  for (const char* endpoint : {"{host: api.h.test, port: 443, protocol: rest, access: read-only}",
                               "{host: api.h.test, port: 443, protocol: rest, enforcement: audit, access: read-only}",
                               "{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, access: read-only, tls: skip}",
                               "{host: api.h.test, port: 443}", "{host: api.h.test, port: 443, protocol: tcp}"}) {
    EXPECT_THAT(findings(endpoint), ElementsAre(kReach)) << endpoint;
  }
}

TEST(RiskProver, WhatCanWriteReachesTheCredential) {
  for (const char* endpoint :
       {"{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, access: full}",
        "{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: PUT, path: /v1}}]}",
        "{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: '*', path: /v1}}]}",
        "{host: api.h.test, port: 443, protocol: graphql, enforcement: enforce, rules: [{allow: {operation_type: mutation}}]}",
        "{host: api.h.test, port: 443, protocol: websocket, enforcement: enforce, access: read-only}",
        "{host: api.h.test, port: 443, protocol: json-rpc, enforcement: enforce, rules: [{allow: {method: a}}]}",
        "{host: api.h.test, port: 443, protocol: mcp, enforcement: enforce, rules: [{allow: {method: tools/call, tool: x}}]}"}) {
    EXPECT_THAT(findings(endpoint), ElementsAre(kReach)) << endpoint;
  }
}

TEST(RiskProver, AFurtherMethodOnAReachedHostIsACapability) {
  const auto one =
      policy_of("{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: POST, path: /v1}}]}");
  const auto two = policy_of(
      "{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, rules: [{allow: {method: POST, path: /v1}}, {allow: {method: "
      "PUT, "
      "path: /v1}}]}");
  EXPECT_THAT(*new_findings(one, two, kApi), ElementsAre("capability_expansion: PUT on api.h.test:443 via /usr/bin/curl"));
  EXPECT_THAT(*new_findings(two, one, kApi), IsEmpty());
  EXPECT_THAT(*new_findings(two, two, kApi), IsEmpty());
}

TEST(RiskProver, ProgramsThatNobodyReads) {
  const std::string read_only = "{host: api.h.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}";
  EXPECT_THAT(findings(read_only, "[/usr/bin/git]"), ElementsAre("l7_bypass_credentialed: api.h.test:443 via /usr/bin/git"));
  EXPECT_THAT(findings(read_only, "['/usr/bin/*']"), ElementsAre("l7_bypass_credentialed: api.h.test:443 via /usr/bin/*"));
  EXPECT_THAT(findings("{host: api.h.test, port: 443}", "[]"), ElementsAre("credential_reach_expansion: api.h.test:443 via *"));
}

TEST(RiskProver, WhereNoCredentialGoesThereIsNothing) {
  EXPECT_THAT(findings("{host: other.test, port: 443}"), IsEmpty());
  EXPECT_THAT(findings("{host: '*.h.test', port: 443}"), ElementsAre("credential_reach_expansion: *.h.test:443 via /usr/bin/curl"));
  EXPECT_THAT(findings("{host: a.pay.test, port: 443}", "[/usr/bin/curl]", {{"**.pay.test"}, false}), SizeIs(1));
  EXPECT_THAT(findings("{host: api.h.test, port: 443}", "[/usr/bin/curl]", {}), IsEmpty());
  EXPECT_THAT(findings("{host: other.test, port: 443, protocol: rest, enforcement: enforce, access: full}", "[/usr/bin/curl]", {{}, true}),
              SizeIs(1))
      << "a provider without a profile";
  EXPECT_THAT(findings("{host: other.test, port: 443}", "[/usr/bin/curl]", {{"a[b"}, false}), SizeIs(1)) << "a place that can not be read";
}

TEST(RiskProver, LinkLocalAddressesNeedNoCredential) {
  pb::SandboxPolicy policy;
  auto& rule = (*policy.mutable_network_policies())["r"];
  rule.add_binaries()->set_path("/usr/bin/curl");
  for (const char* host : {"169.254.1.1", "fe80::1", "metadata.google.internal", "10.0.0.1"}) {
    auto& endpoint = *rule.add_endpoints();
    endpoint.set_host(host);
    endpoint.add_ports(80);
  }
  EXPECT_THAT(*new_findings({}, policy, {}),
              ElementsAre("link_local_reach: 169.254.1.1:80 via /usr/bin/curl", "link_local_reach: fe80::1:80 via /usr/bin/curl",
                          "link_local_reach: metadata.google.internal:80 via /usr/bin/curl"));
}

TEST(RiskProver, APolicyThatIsTooLargeIsNotJudged) {
  pb::SandboxPolicy policy;
  auto& rule = (*policy.mutable_network_policies())["r"];
  for (int i = 0; i < 1'001; ++i) rule.add_binaries()->set_path("/b" + std::to_string(i));
  auto& endpoint = *rule.add_endpoints();
  endpoint.set_host("other.test");
  for (std::uint32_t port = 1; port <= 999; ++port) endpoint.add_ports(port);
  EXPECT_TRUE(new_findings({}, policy, kApi).ok());
  endpoint.add_ports(1'000);
  EXPECT_FALSE(new_findings({}, policy, kApi).ok());
  EXPECT_TRUE(new_findings(policy, {}, kApi).ok()) << "a current policy without an answer counts as none";
}

TEST(RiskProver, TheVerdictInWords) {
  EXPECT_EQ(describe_findings({}), "prover: no new findings");
  EXPECT_EQ(describe_findings({"a"}), "prover: 1 new finding\n  a");
  EXPECT_EQ(describe_findings({"a", "b"}), "prover: 2 new findings\n  a\n  b");
  const auto many = describe_findings(std::vector<std::string>(51, "a"));
  EXPECT_TRUE(many.ends_with("\n  and 1 more")) << many;
}

}  // namespace
}  // namespace openshell::policy
