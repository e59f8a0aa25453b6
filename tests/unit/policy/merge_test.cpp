#include "policy/merge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "openshell.pb.h"
#include "policy/blocked_destination.hpp"
#include "policy/candidate.hpp"
#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace v1 = openshell::v1;

pb::SandboxPolicy policy(const std::string& rules) {
  auto loaded = load_policy("version: 1\nnetwork_policies:\n" + rules);
  EXPECT_TRUE(loaded.ok()) << loaded.diagnostics.render();
  return loaded.ok() ? *loaded.policy : pb::SandboxPolicy{};
}
pb::NetworkPolicyRule rule(const std::string& keys) {
  auto loaded = parse_policy("version: 1\nnetwork_policies: {r: {" + keys + "}}\n");
  EXPECT_TRUE(loaded.ok()) << loaded.diagnostics.render();
  auto out = loaded.policy->network_policies().at("r");
  out.clear_name();
  return out;
}

MergeOperations add(const std::string& name, const std::string& keys) {
  MergeOperations operations;
  auto& operation = *operations.Add()->mutable_add_rule();
  operation.set_rule_name(name);
  *operation.mutable_rule() = rule(keys);
  return operations;
}
std::string why(const pb::SandboxPolicy& base, const MergeOperations& operations) {
  const auto status = merge(base, operations).status();
  return {status.message().data(), status.message().size()};
}

const std::string kGit =
    "  r: {binaries: [/usr/bin/git], endpoints: [{host: code.demo.test, port: 443}, {host: blob.demo.test, port: 443}]}\n";

TEST(Merge, B04_AMergeNeverGrantsAPairThatNobodyDeclared) {
  const auto base = policy(kGit);
  auto batch = add("fresh", "binaries: [/usr/bin/curl], endpoints: [{host: other.demo.test, port: 443}]");
  batch.MergeFrom(add("r", "binaries: [/usr/bin/curl], endpoints: [{host: code.demo.test, port: 443}]"));
  const auto refused = merge(base, batch);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(why(base, batch),
            "merge operation 1 add-rule 'r' would grant binary '/usr/bin/curl' undeclared authorization for blob.demo.test on ports [443]");
  EXPECT_EQ(why(base, add("r", "binaries: [/usr/bin/git], endpoints: []")),
            "merge_operations[0].add_rule.rule must contain at least one endpoint");
  // Both endpoints declared, and the program that is there named: nothing is hidden from the author.
  const auto all = merge(base, add("r",
                                   "binaries: [/usr/bin/curl, /usr/bin/git], endpoints: [{host: code.demo.test, port: 443}, {host: "
                                   "blob.demo.test, port: 443}]"));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->policy.network_policies().at("r").binaries_size(), 2);
}

TEST(Merge, B04_ExistingProgramsGetNothingNewUnnamed) {
  const auto base = policy(kGit);
  EXPECT_EQ(why(base, add("r",
                          "binaries: [/usr/bin/curl], endpoints: [{host: code.demo.test, port: 443}, {host: blob.demo.test, port: 443}, "
                          "{host: new.demo.test, port: 443}]")),
            "merge operation 0 add-rule 'r' would grant existing binaries new or changed authorization for new.demo.test on ports [443]; "
            "also declare /usr/bin/git");
  const auto any = policy("  r: {endpoints: [{host: code.demo.test, port: 443}]}\n");
  EXPECT_THAT(why(any, add("r", "binaries: [/usr/bin/git], endpoints: [{host: new.demo.test, port: 443}]")),
              HasSubstr("also declare the existing any-binary scope"));
  EXPECT_THAT(why(base, add("r", "endpoints: [{host: code.demo.test, port: 443}]")), HasSubstr("would grant any binary undeclared"));
}

TEST(Merge, B04_CoveredIsSaidOnlyOfEveryPair) {
  const auto base = policy(kGit);
  EXPECT_TRUE(covers(base, rule("binaries: [/usr/bin/git], endpoints: [{host: CODE.demo.test, port: 443}]")));
  EXPECT_FALSE(covers(base, rule("binaries: [/usr/bin/git, /usr/bin/curl], endpoints: [{host: code.demo.test, port: 443}]")));
  EXPECT_FALSE(covers(base, rule("binaries: [/usr/bin/git], endpoints: [{host: code.demo.test, ports: [443, 8443]}]")));
  EXPECT_FALSE(covers(base, rule("endpoints: [{host: code.demo.test, port: 443}]")));
  EXPECT_FALSE(covers(base, rule("binaries: [/usr/bin/git], endpoints: []")));
  EXPECT_FALSE(
      covers(base, rule("binaries: [/usr/bin/git], endpoints: [{host: code.demo.test, port: 443, protocol: rest, access: full}]")));
}

TEST(Merge, UndeclaredPortsOfAWidenedEndpointAreRefused) {
  const auto base = policy("  r: {binaries: [/bin/a], endpoints: [{host: x.demo.test, ports: [443, 8443]}]}\n");
  EXPECT_EQ(why(base, add("r", "binaries: [/bin/a], endpoints: [{host: x.demo.test, port: 443, protocol: rest, access: full}]")),
            "merge operation 0 add-rule 'r' would change authorization for x.demo.test on undeclared ports [8443]; declare every port of "
            "the endpoint it modifies");
}

TEST(Merge, ARuleThatSharesAnEndpointIsFoldedOrKeptApart) {
  const auto base = policy(kGit);
  const auto folded = merge(base, add("more", "binaries: [/usr/bin/git], endpoints: [{host: code.demo.test, ports: [443, 8443]}]"));
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_EQ(folded->policy.network_policies_size(), 1);
  const auto apart = merge(base, add("more", "binaries: [/usr/bin/curl], endpoints: [{host: code.demo.test, port: 443}]"));
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_EQ(apart->policy.network_policies_size(), 2);
  EXPECT_THAT(apart->warnings,
              ElementsAre(HasSubstr("kept add-rule 'more' on its own rule instead of folding it into overlapping rule 'r'")));
}

TEST(Merge, PresetsBecomeRulesWhereRulesAreAdded) {
  const auto base = policy("  gh: {binaries: [/bin/gh], endpoints: [{host: x.demo.test, port: 443, protocol: rest, access: read-only}]}\n");
  MergeOperations operations;
  auto& allow = *operations.Add()->mutable_add_allow_rules();
  allow.mutable_target()->set_rule_name("gh");
  allow.mutable_target()->set_host("X.demo.test");
  allow.mutable_target()->add_ports(443);
  allow.mutable_target()->add_binaries()->set_path("/bin/gh");
  auto& one = *allow.add_rules()->mutable_allow();
  one.set_method("POST");
  one.set_path("/issues");
  const auto merged = merge(base, operations);
  ASSERT_TRUE(merged.ok()) << merged.status();
  const auto& endpoint = merged->policy.network_policies().at("gh").endpoints(0);
  EXPECT_EQ(endpoint.rules_size(), 4);
  EXPECT_EQ(endpoint.access(), pb::NETWORK_ACCESS_PRESET_UNSPECIFIED);

  auto& target = *operations.Mutable(0)->mutable_add_allow_rules()->mutable_target();
  target.add_ports(8443);
  EXPECT_EQ(
      why(base, operations),
      "L7 target in rule 'gh' for X.demo.test declares ports [443, 8443], but the append affects [443]; declare the complete endpoint "
      "port set");
  target.mutable_ports()->RemoveLast();
  target.add_binaries()->set_path("/bin/b");
  EXPECT_EQ(
      why(base, operations),
      "L7 target in rule 'gh' declares binary scope [\"/bin/b\", \"/bin/gh\"], but the append affects [\"/bin/gh\"]; declare the complete "
      "binary scope");
  target.set_any_binary(true);
  EXPECT_THAT(why(base, operations), HasSubstr("requires exactly one of any_binary=true or nonempty binaries"));
  target.clear_any_binary();
  target.set_path("/none");
  EXPECT_EQ(why(base, operations),
            "L7 target in rule 'gh' for X.demo.test on ports [443] with endpoint path Some(\"/none\") was not found");
}

TEST(Merge, RemovingTheLastBinaryRemovesTheRuleNeverWidensIt) {
  const auto base = policy(kGit);
  const auto gone = remove_binary(base, "r", "/usr/bin/git");
  ASSERT_TRUE(gone.ok());
  EXPECT_EQ(gone->network_policies_size(), 0);
  EXPECT_EQ(remove_binary(base, "r", "/usr/bin/other")->network_policies_size(), 1);
  EXPECT_EQ(remove_binary(base, "none", "/usr/bin/git")->network_policies_size(), 1);
  const auto any = policy("  r: {endpoints: [{host: code.demo.test, port: 443}]}\n");
  EXPECT_EQ(remove_binary(any, "r", "/usr/bin/git").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Merge, ABatchIsAppliedWhollyOrNotAtAll) {
  auto batch = add("a", "binaries: [/bin/a], endpoints: [{host: x.demo.test, port: 443}]");
  batch.Add();
  EXPECT_EQ(why({}, batch), "merge_operations[1] is missing an operation");
}

TEST(Merge, BlockedDestinationsAreRefusedBeforeTheyAreStored) {
  for (const char* host : {"127.0.0.1", "169.254.169.254", "'::1'", "localhost", "LOCALHOST.", "metadata.google.internal", "'fe80::1'",
                           "'::ffff:127.0.0.1'", "0.0.0.0"}) {
    EXPECT_THAT(why({}, add("a", std::string{"binaries: [/bin/a], endpoints: [{host: "} + host + ", port: 80}]")),
                HasSubstr("regardless of policy"))
        << host;
  }
  EXPECT_TRUE(merge({}, add("a", "binaries: [/bin/a], endpoints: [{host: host.openshell.internal, port: 80}]")).ok());
}

TEST(SecurityNotes, SayWhatAPersonShouldKnow) {
  EXPECT_EQ(security_notes(rule("endpoints: [{host: x.demo.test, port: 443}]")), "");
  EXPECT_EQ(security_notes(rule("endpoints: [{host: 10.1.2.3, port: 5432}]")),
            "Destination '10.1.2.3' appears to be an internal/private address. Port 5432 is a well-known database/service port.");
  EXPECT_THAT(security_notes(rule("endpoints: [{host: '*.demo.test', port: 49153}]")), HasSubstr("Port 49153 is in the ephemeral range"));
  EXPECT_EQ(security_notes(rule("endpoints: [{host: x.demo.test, port: 49152}]")), "");
}

TEST(Candidate, AMechanicalProposalTakesOverTheContractInForce) {
  const auto base =
      policy("  api: {binaries: [/bin/a], endpoints: [{host: x.demo.test, ports: [443, 8443], protocol: rest, access: read-only}]}\n");
  const auto made =
      make_candidate(base, base, "allow_x_demo_test_443", rule("binaries: [/bin/b], endpoints: [{host: x.demo.test, port: 443}]"), true);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->rule_name, "allow_x_demo_test_443");
  const auto& endpoint = made->base.network_policies().at("allow_x_demo_test_443").endpoints(0);
  EXPECT_EQ(endpoint.protocol(), "rest") << "a new program does not get a laxer way to the same place";
  EXPECT_EQ(endpoint.ports_size(), 1);
  EXPECT_TRUE(endpoint.advisor_proposed());
  EXPECT_TRUE(check_candidate(made->base).ok()) << check_candidate(made->base);
  EXPECT_EQ(made->base.network_policies().at("api").binaries_size(), 1) << "the old rule is as it was";
  const auto second = make_candidate(made->base, made->base, "allow_x_demo_test_443",
                                     rule("binaries: [/bin/c], endpoints: [{host: x.demo.test, port: 443}]"), true);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->rule_name, "allow_x_demo_test_443_2");
}

TEST(Candidate, TwoContractsAtOnePlaceAreNotGuessedBetween) {
  const auto base = policy(
      "  a: {binaries: [/bin/a], endpoints: [{host: x.demo.test, port: 443, protocol: rest, access: read-only, path: /a/**}]}\n"
      "  b: {binaries: [/bin/a], endpoints: [{host: x.demo.test, port: 443, protocol: rest, access: full, path: /b/**}]}\n");
  const auto made = make_candidate(base, base, "n", rule("binaries: [/bin/b], endpoints: [{host: x.demo.test, port: 443}]"), true);
  EXPECT_EQ(std::string(made.status().message().data(), made.status().message().size()),
            "candidate canonicalization failed: cannot infer one existing endpoint contract for x.demo.test:443");
}

// A broad rule of the user beside a provider's layer: the more specific endpoint decides for its host, the rest keeps the broad rule. In
// whichever order the two came.
TEST(ReportedFaults, B02_ABroadRuleStandsBesideAProvidersRule) {
  auto both = policy("  wide: {binaries: [/usr/bin/curl], endpoints: [{host: '**.pay.test', port: 443, tls: skip}]}\n");
  auto layer = rule(
      "binaries: [/usr/bin/curl], endpoints: [{host: api.pay.test, port: 443, protocol: rest, enforcement: enforce, access: read-only}]");
  layer.set_name("_provider_pay");
  layer.mutable_endpoints(0)->set_provider_credentialed(true);
  (*both.mutable_network_policies())["_provider_pay"] = layer;
  ASSERT_FALSE(validate(both).has_errors()) << validate(both).render();
  ASSERT_FALSE(find_ambiguities(both).has_errors()) << find_ambiguities(both).render();
  const auto matcher = Matcher::compile(both);
  ASSERT_TRUE(matcher.ok()) << matcher.status();
  const auto inspected = (*matcher)->connect({"api.pay.test", 443, {"/usr/bin/curl", {}, {}}});
  EXPECT_EQ(inspected.inspection, Inspection::requests);
  EXPECT_EQ(inspected.tls, TlsMode::automatic);
  EXPECT_TRUE(inspected.request({"GET", "/v1/charges", {}}).forwards());
  EXPECT_FALSE(inspected.request({"POST", "/v1/charges", {}}).forwards());
  const auto raw = (*matcher)->connect({"shop.pay.test", 443, {"/usr/bin/curl", {}, {}}});
  EXPECT_TRUE(raw.allowed);
  EXPECT_EQ(raw.inspection, Inspection::raw);
}

}  // namespace
}  // namespace openshell::policy
