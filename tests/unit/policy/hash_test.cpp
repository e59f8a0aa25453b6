#include "policy/hash.hpp"

#include <gtest/gtest.h>

#include "policy/normalize.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

pb::SandboxPolicy with_rule(const std::string& name, pb::NetworkEndpoint** endpoint, const std::string& host) {
  pb::SandboxPolicy policy;
  policy.set_version(1);
  auto& rule = (*policy.mutable_network_policies())[name];
  rule.set_name(name);
  *endpoint = rule.add_endpoints();
  (*endpoint)->set_host(host);
  (*endpoint)->set_port(443);
  (*endpoint)->add_ports(443);
  return policy;
}

pb::SandboxPolicy mcp_policy(bool explicit_false) {
  pb::NetworkEndpoint* endpoint = nullptr;
  auto policy = with_rule("m", &endpoint, "a.test");
  endpoint->set_protocol("mcp");
  endpoint->set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
  auto* allow = endpoint->add_rules()->mutable_allow();
  allow->set_method("tools/call");
  (*allow->mutable_params())["name"].set_glob("read");
  endpoint->mutable_mcp()->add_versions("2025-11-25");
  if (explicit_false) endpoint->mutable_mcp()->set_strict_tool_names(false);
  return policy;
}

// The check vectors that every implementation has to reproduce.
TEST(PolicyHash, GoldenVectors) {
  pb::SandboxPolicy empty;
  empty.set_version(1);
  EXPECT_EQ(canonical_bytes(empty).size(), 77U);
  EXPECT_EQ(policy_hash(empty).str(), "1b621527d93a4bf142d82c81efd9c3245ddedeca7c6f210dc8e433d193473629");

  pb::NetworkEndpoint* endpoint = nullptr;
  auto weather = with_rule("weather", &endpoint, "api.weather.test");
  endpoint->set_protocol("rest");
  endpoint->set_enforcement(pb::NETWORK_ENFORCEMENT_MODE_ENFORCE);
  endpoint->set_access(pb::NETWORK_ACCESS_PRESET_READ_ONLY);
  (*weather.mutable_network_policies())["weather"].add_binaries()->set_path("/usr/bin/curl");
  weather.mutable_filesystem()->set_include_workdir(true);
  weather.mutable_filesystem()->add_read_only("/usr");
  weather.mutable_filesystem()->add_read_write("/tmp");
  weather.mutable_landlock()->set_compatibility("best_effort");
  EXPECT_EQ(canonical_bytes(weather).size(), 251U);
  EXPECT_EQ(policy_hash(weather).str(), "6d16ed9e0f030cc2a767cb03c29d41ebae1f80c3b6fd9ce0b580305e1eb7de33");

  auto query = with_rule("r", &endpoint, "a.test");
  endpoint->set_protocol("rest");
  auto* allow = endpoint->add_rules()->mutable_allow();
  allow->set_method("GET");
  allow->set_path("/dl");
  (*allow->mutable_query())["tag"].set_glob("v1.*");
  EXPECT_EQ(canonical_bytes(query).size(), 279U);
  EXPECT_EQ(policy_hash(query).str(), "d6f9ea948315b560d084b6ecc19bb5626f257fe8412fd8a5ddcaf9d665e52b80");

  EXPECT_EQ(canonical_bytes(mcp_policy(true)).size(), 300U);
  EXPECT_EQ(policy_hash(mcp_policy(true)).str(), "9899eb4a24f03275d39c453e1d2e26563fc3cd241f8e2c93800f704d3c223e54");
  EXPECT_EQ(canonical_bytes(mcp_policy(false)).size(), 298U);
  EXPECT_EQ(policy_hash(mcp_policy(false)).str(), "7b5f4709414b55f1a5762e250ef20499cfc4e1f0be591d16509157bdcb953f86");
}

TEST(PolicyHash, UnknownFieldsDoNotCount) {
  pb::SandboxPolicy policy = mcp_policy(true);
  pb::SandboxPolicy extended;
  std::string bytes = policy.SerializeAsString();
  bytes += std::string{"\xF8\x07\x01", 3};  // field 127, varint 1
  ASSERT_TRUE(extended.ParseFromString(bytes));
  EXPECT_EQ(policy_hash(extended), policy_hash(policy));
}

TEST(PolicyHash, ListOrderCountsMapOrderDoesNot) {
  pb::SandboxPolicy a;
  pb::SandboxPolicy b;
  for (const auto* key : {"x", "y", "z"}) (*a.mutable_network_policies())[key].set_name(key);
  for (const auto* key : {"z", "x", "y"}) (*b.mutable_network_policies())[key].set_name(key);
  EXPECT_EQ(policy_hash(a), policy_hash(b));
  a.mutable_filesystem()->add_read_only("/a");
  a.mutable_filesystem()->add_read_only("/b");
  b.mutable_filesystem()->add_read_only("/b");
  b.mutable_filesystem()->add_read_only("/a");
  EXPECT_NE(policy_hash(a), policy_hash(b));
}

TEST(PolicyHash, TheMiddlewareConfigCounts) {
  pb::SandboxPolicy a;
  auto& config = *(*a.mutable_network_middlewares())["m"].mutable_config();
  (*config.mutable_fields())["limit"].set_number_value(1);
  const auto one = policy_hash(a);
  (*config.mutable_fields())["limit"].set_number_value(2);
  EXPECT_NE(policy_hash(a), one);
}

TEST(Normalize, D55e_WireAndTextFormsHashAlikeAndTwiceChangesNothing) {
  pb::SandboxPolicy sparse;
  auto& rule = (*sparse.mutable_network_policies())["api"];
  auto* endpoint = rule.add_endpoints();
  endpoint->set_host("a.x.test");
  endpoint->set_port(8443);
  endpoint->set_protocol("REST");
  endpoint->set_advisor_proposed(true);
  endpoint->set_provider_credentialed(true);
  endpoint->set_token_grant_owner("x");
  endpoint->add_rules();
  sparse.mutable_landlock();
  sparse.mutable_process();
  normalize(sparse, Provenance::clear);
  EXPECT_EQ(sparse.version(), 1U);
  EXPECT_EQ(sparse.landlock().compatibility(), "best_effort");
  EXPECT_FALSE(sparse.has_process());
  const auto& canonical = sparse.network_policies().at("api");
  EXPECT_EQ(canonical.name(), "api");
  EXPECT_EQ(canonical.endpoints(0).ports(0), 8443U);
  EXPECT_EQ(canonical.endpoints(0).protocol(), "rest");
  EXPECT_TRUE(canonical.endpoints(0).rules(0).has_allow());
  EXPECT_FALSE(canonical.endpoints(0).advisor_proposed() || canonical.endpoints(0).provider_credentialed());
  EXPECT_TRUE(canonical.endpoints(0).token_grant_owner().empty());
  const auto once = sparse.SerializeAsString();
  normalize(sparse, Provenance::clear);
  EXPECT_EQ(sparse.SerializeAsString(), once);
}

TEST(Normalize, EffectivePoliciesKeepTheirMarkersAndMcpVersionsAreOrdered) {  // L7-27
  pb::SandboxPolicy policy = mcp_policy(true);
  auto* endpoint = (*policy.mutable_network_policies())["m"].mutable_endpoints(0);
  endpoint->set_provider_credentialed(true);
  endpoint->mutable_mcp()->add_versions("2025-03-26");
  normalize(policy, Provenance::keep);
  EXPECT_TRUE(endpoint->provider_credentialed());
  EXPECT_EQ(endpoint->mcp().versions(0), "2025-03-26");
  EXPECT_TRUE(endpoint->mcp().has_strict_tool_names());
  endpoint->mutable_mcp()->clear_versions();
  normalize(policy, Provenance::keep);
  EXPECT_EQ(endpoint->mcp().versions(0), kDefaultMcpVersion);
}

TEST(Normalize, APortThatIsNotListedIsReplacedWithAWarning) {
  pb::NetworkEndpoint* endpoint = nullptr;
  auto policy = with_rule("r", &endpoint, "a.x.test");
  endpoint->set_port(80);
  EXPECT_EQ(normalize(policy, Provenance::clear).items().size(), 1U);
  EXPECT_EQ(endpoint->port(), 443U);
}

TEST(Normalize, PathHelper) {
  EXPECT_EQ(normalize_path("/a//b/./c/"), "/a/b/c");
  EXPECT_EQ(normalize_path("/a/../b"), "/a/../b");
  EXPECT_EQ(normalize_path("///"), "/");
}

TEST(ConfigRevision, EveryPartCounts) {
  ConfigFingerprint base;
  base.failure_mode = "fail_closed";
  base.hash = PolicyHash{std::string(64, 'a')};
  const auto first = config_revision(base);
  EXPECT_EQ(first, config_revision(base));
  auto other = base;
  other.policy_source = 2;
  EXPECT_NE(config_revision(other), first);
  other = base;
  other.failure_mode = "retain_last_valid";
  EXPECT_NE(config_revision(other), first);
  other = base;
  other.extension_authentication = true;
  EXPECT_NE(config_revision(other), first);
  other = base;
  pb::EffectiveSetting setting;
  setting.mutable_value()->set_bool_value(false);
  other.settings["k"] = &setting;
  const auto off = config_revision(other);
  EXPECT_NE(off, first);
  setting.mutable_value()->set_bool_value(true);
  EXPECT_NE(config_revision(other), off);
}

}  // namespace
}  // namespace openshell::policy
