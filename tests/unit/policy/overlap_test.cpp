#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A policy put together endpoint by endpoint, each in a rule of its own.
class Policy {
 public:
  pb::NetworkEndpoint& add(const std::string& key, const std::string& host, const std::string& protocol,
                           std::vector<std::uint32_t> ports = {443}) {
    auto& rule = (*policy_.mutable_network_policies())[key];
    rule.set_name(key);
    auto* endpoint = rule.add_endpoints();
    endpoint->set_host(host);
    endpoint->set_protocol(protocol);
    for (const auto port : ports) endpoint->add_ports(port);
    endpoint->set_port(ports.front());
    return *endpoint;
  }
  [[nodiscard]] std::vector<std::string> conflicts() const { return find_ambiguities(policy_).messages(); }

 private:
  pb::SandboxPolicy policy_;
};

void skip_tls(pb::NetworkEndpoint& e) { e.set_tls(pb::NETWORK_TLS_MODE_SKIP); }
void enforce(pb::NetworkEndpoint& e) { e.set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE); }

TEST(Overlap, NET_58_TheMoreSpecificOneDecidesSoNothingIsAmbiguous) {
  Policy p;
  skip_tls(p.add("a", "*.x.test", ""));
  p.add("b", "api.x.test", "rest");
  EXPECT_THAT(p.conflicts(), IsEmpty());
}

TEST(Overlap, NET_59_EquallySpecificOnesHaveToAgree) {
  Policy p;
  skip_tls(p.add("a", "api.x.test", ""));
  p.add("b", "API.x.test", "rest");
  EXPECT_THAT(
      p.conflicts(),
      ElementsAre(
          "network policies 'a' endpoint[0] (api.x.test:443) and 'b' endpoint[0] (API.x.test:443) overlap on port(s) 443 with conflicting "
          "metadata: tls=\"skip\" vs \"auto\"; protocol=\"\" vs \"rest\"; smallest change: remove 'b' endpoint[0] or make it equal to the "
          "other one"));
}

TEST(Overlap, PlainEndpointsOnlyAuthorise) {
  Policy p;
  p.add("a", "api.x.test", "");
  p.add("b", "api.x.test", "rest");
  EXPECT_THAT(p.conflicts(), IsEmpty());
}

TEST(Overlap, PathsSplitRequests) {
  Policy p;
  p.add("a", "api.x.test", "rest");
  p.add("b", "api.x.test", "graphql").set_path("/graphql");
  EXPECT_THAT(p.conflicts(), IsEmpty());
  Policy q;
  q.add("a", "api.x.test", "graphql").set_path("/a?c");
  q.add("b", "api.x.test", "rest").set_path("/abc");
  EXPECT_THAT(q.conflicts(), IsEmpty());
  Policy r;
  r.add("a", "api.x.test", "graphql").set_path("/v[0-4]");
  r.add("b", "api.x.test", "rest").set_path("/v[5-9]");
  EXPECT_THAT(r.conflicts(), IsEmpty());
  Policy s;
  s.add("a", "api.x.test", "graphql").set_path("/v[0-5]");
  s.add("b", "api.x.test", "rest").set_path("/v[5-9]");
  EXPECT_THAT(s.conflicts(), ElementsAre(HasSubstr("(api.x.test:443/v[0-5]) and 'b' endpoint[0] (api.x.test:443/v[5-9])")));
}

TEST(Overlap, RawAndNotRaw) {
  Policy p;
  p.add("a", "api.x.test", "tcp");
  p.add("b", "api.x.test", "");
  EXPECT_THAT(
      p.conflicts(),
      ElementsAre(HasSubstr("transparent_tcp_eligible=true vs false; smallest change: set protocol of 'b' endpoint[0] to \"tcp\"")));
  Policy q;
  q.add("a", "api.x.test", "sql");
  q.add("b", "api.x.test", "tcp");
  EXPECT_THAT(q.conflicts(), IsEmpty());
  Policy r;
  r.add("a", "api.x.test", "sql");
  r.add("b", "api.x.test", "rest");
  EXPECT_THAT(r.conflicts(), SizeIs(1));
}

TEST(Overlap, NET_58_UserOverProviderWhereInspectionAgrees) {
  Policy p;
  enforce(p.add("user", "api.x.test", "rest"));
  p.add("_provider_p", "api.x.test", "rest");
  EXPECT_THAT(p.conflicts(), IsEmpty());
  Policy q;
  q.add("user", "api.x.test", "graphql");
  q.add("_provider_p", "api.x.test", "rest");
  EXPECT_THAT(q.conflicts(),
              ElementsAre(HasSubstr("protocol=\"rest\" vs \"graphql\"; smallest change: set protocol of 'user' endpoint[0] to \"rest\"")));
}

TEST(Overlap, AProposalMayNotSoftenAnExplicitEndpoint) {
  for (const char* path : {"", "/v1/**"}) {
    Policy p;
    enforce(p.add("_provider_p", "*.x.test", "rest"));
    auto& proposal = p.add("agent", "api.x.test", "rest");
    proposal.set_advisor_proposed(true);
    proposal.set_path(path);
    EXPECT_THAT(p.conflicts(), ElementsAre(HasSubstr("enforcement=\"enforce\" vs \"audit\""))) << path;
  }
  Policy q;
  enforce(q.add("_provider_p", "*.x.test", "rest"));
  q.add("agent", "api.x.test", "").set_advisor_proposed(true);
  EXPECT_THAT(q.conflicts(), IsEmpty());
}

TEST(Overlap, WildcardsOfEqualCounts) {
  Policy p;
  p.add("a", "a-*.x.test", "rest");
  skip_tls(p.add("b", "*-b.x.test", ""));
  EXPECT_THAT(p.conflicts(), ElementsAre(HasSubstr("tls=")));
  Policy q;
  q.add("a", "aa-*.x.test", "rest");
  skip_tls(q.add("b", "*-b.x.test", ""));
  EXPECT_THAT(q.conflicts(), IsEmpty());
  Policy r;
  r.add("a", "a.*.x.test", "rest");
  skip_tls(r.add("b", "b.*.x.test", ""));
  EXPECT_THAT(r.conflicts(), IsEmpty()) << "no host is admitted by both";
}

TEST(Overlap, PortsHaveToMeet) {
  Policy p;
  skip_tls(p.add("a", "api.x.test", "", {80, 81}));
  p.add("b", "api.x.test", "rest", {443, 444});
  EXPECT_THAT(p.conflicts(), IsEmpty());
  Policy q;
  skip_tls(q.add("a", "api.x.test", "", {443, 444, 80}));
  q.add("b", "api.x.test", "rest", {444, 443, 81});
  EXPECT_THAT(q.conflicts(), ElementsAre(HasSubstr("overlap on port(s) 443,444 with conflicting metadata")));
  EXPECT_THAT(q.conflicts().front(), HasSubstr("smallest change: leave port(s) 443,444 out of 'b' endpoint[0]"));
  Policy r;
  skip_tls(r.add("a", "api.x.test", "", {443}));
  r.add("b", "api.x.test", "rest", {443, 81});
  EXPECT_THAT(r.conflicts(), IsEmpty()) << "one port is more specific than a list";
}

TEST(Overlap, NET_59_EveryFieldOfTheMetadata) {
  const auto conflict = [](const std::string& protocol, auto&& change) {
    Policy p;
    p.add("a", "api.x.test", protocol);
    change(p.add("b", "api.x.test", protocol));
    const auto found = p.conflicts();
    return found.empty() ? std::string{} : found.front();
  };
  EXPECT_THAT(conflict("rest", [](auto& e) { e.add_allowed_ips(" 10.0.0.0/8 "); }), HasSubstr("allowed_ips=[] vs [\"10.0.0.0/8\"]"));
  EXPECT_THAT(conflict("rest", [](auto& e) { enforce(e); }), HasSubstr("smallest change: set enforcement of 'b' endpoint[0] to \"audit\""));
  EXPECT_THAT(conflict("rest", [](auto& e) { e.set_allow_encoded_slash(true); }), HasSubstr("allow_encoded_slash=false vs true"));
  EXPECT_THAT(conflict("rest", [](auto& e) { e.set_websocket_credential_rewrite(true); }), HasSubstr("websocket_credential_rewrite"));
  EXPECT_THAT(conflict("rest", [](auto& e) { e.set_request_body_credential_rewrite(true); }), HasSubstr("request_body_credential_rewrite"));
  EXPECT_THAT(conflict("rest", [](auto& e) { e.set_credential_signing("sigv4"); }), HasSubstr("credential_signing=\"\" vs \"sigv4\""));
  EXPECT_THAT(conflict("rest", [](auto& e) { e.set_signing_service("s3"); }), HasSubstr("signing_service"));
  EXPECT_THAT(conflict("rest", [](auto& e) { e.set_signing_region("r"); }), HasSubstr("signing_region"));
  EXPECT_THAT(conflict("rest", [](auto& e) { e.mutable_credential_binding()->set_provider("w"); }),
              HasSubstr("credential_binding.provider=\"\" vs \"w\""));
  EXPECT_THAT(conflict("websocket", [](auto& e) { e.set_persisted_queries("allow_registered"); }), HasSubstr("websocket_graphql_policy"));
  EXPECT_THAT(conflict("graphql", [](auto& e) { e.set_graphql_max_body_bytes(1); }), HasSubstr("graphql_max_body_bytes=65536 vs 1"));
  EXPECT_THAT(conflict("json-rpc", [](auto& e) { e.set_json_rpc_max_body_bytes(1); }), HasSubstr("json_rpc_max_body_bytes=65536 vs 1"));
  EXPECT_THAT(conflict("mcp", [](auto& e) { e.mutable_mcp()->set_strict_tool_names(false); }),
              HasSubstr("mcp.strict_tool_names=true vs false"));
  EXPECT_THAT(conflict("mcp", [](auto& e) { e.mutable_mcp()->add_versions("2025-06-18"); }),
              HasSubstr("mcp.versions=[\"2025-11-25\"] vs [\"2025-06-18\"]"));
  EXPECT_THAT(conflict("mcp", [](auto& e) { e.mutable_mcp()->set_allow_all_known_mcp_methods(true); }),
              HasSubstr("mcp.allow_all_known_mcp_methods"));
  EXPECT_EQ(conflict("graphql", [](auto& e) { e.set_graphql_max_body_bytes(65'536); }), "");
  EXPECT_EQ(conflict("rest", [](auto& e) { e.set_access(pb::NETWORK_ACCESS_PRESET_FULL); }), "") << "rules are a union";
}

TEST(Overlap, EndpointsOfOneRuleAndHostlessOnes) {
  Policy p;
  p.add("a", "api.x.test", "rest");
  enforce(p.add("a", "api.x.test", "rest"));
  EXPECT_THAT(p.conflicts(), ElementsAre(HasSubstr("'a' endpoint[0] (api.x.test:443) and 'a' endpoint[1]")));
  Policy q;
  q.add("a", "", "").add_allowed_ips("10.0.0.0/8");
  q.add("b", "", "").add_allowed_ips("10.1.0.0/16");
  EXPECT_THAT(q.conflicts(), ElementsAre(HasSubstr("(<any-host>:443)")));
}

TEST(Overlap, LargePoliciesAreComparedInLittleTime) {
  Policy p;
  for (int i = 0; i < 5'000; ++i) p.add("r" + std::to_string(i), "h" + std::to_string(i) + ".x.test", "rest");
  for (int i = 0; i < 300; ++i) p.add("w" + std::to_string(i), "*.w" + std::to_string(100 + i) + ".x.test", "rest");
  EXPECT_THAT(p.conflicts(), IsEmpty());
}

TEST(Overlap, TooManyEndpointsOnOneHostAreRefusedNotSkipped) {
  static_assert(3'200UL * 3'199 / 2 > kMaxOverlapPairs);
  Policy p;
  for (std::uint32_t i = 0; i < 3'200; ++i) p.add("r", "h.x.test", "rest", {1 + i});
  EXPECT_THAT(p.conflicts(), ElementsAre(HasSubstr("pairs of endpoints on the same hosts to compare")));
}

}  // namespace
}  // namespace openshell::policy
