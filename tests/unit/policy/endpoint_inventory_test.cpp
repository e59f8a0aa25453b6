#include <gtest/gtest.h>

#include "policy/endpoint_inventory.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

sandbox::v1::NetworkEndpoint* add(sandbox::v1::SandboxPolicy& policy, const std::string& key, const std::string& host, std::uint32_t port,
                                  const std::string& protocol) {
  auto* endpoint = (*policy.mutable_network_policies())[key].add_endpoints();
  endpoint->set_host(host);
  endpoint->set_port(port);
  endpoint->set_protocol(protocol);
  return endpoint;
}

TEST(EndpointInventory, HoldsToolServersWithAHostAndNothingElse) {  // TS-02
  sandbox::v1::SandboxPolicy policy;
  add(policy, "b", "Tools.Test", 443, "mcp");
  add(policy, "a", "api.test", 443, "rest");
  add(policy, "a", "other.test", 8443, "MCP")->set_path("/v1/**");
  add(policy, "a", "", 443, "mcp");
  const auto inventory = endpoint_inventory(policy);
  ASSERT_EQ(inventory.size(), 2U);
  EXPECT_EQ(inventory[0].policy, "a");
  EXPECT_EQ(inventory[0].index, 1U);
  EXPECT_EQ(inventory[0].path, "/v1/**");
  EXPECT_EQ(inventory[1].host, "tools.test");
  EXPECT_EQ(inventory[1].path, "/**");
  EXPECT_EQ(inventory[1].ports, std::vector<std::uint32_t>{443});
}

// The same place is the same record, however it is written; another place never is.
TEST(EndpointInventory, TheIdIsThatOfHostPathAndPorts) {  // TS-11
  sandbox::v1::SandboxPolicy policy;
  add(policy, "a", "TOOLS.test", 443, "mcp")->set_path("**");
  auto* twice = add(policy, "b", "tools.test", 1, "mcp");
  twice->add_ports(443);
  twice->add_ports(443);
  add(policy, "c", "tools.test", 444, "mcp");
  add(policy, "d", "tools.test", 443, "mcp")->set_path("/x");
  const auto inventory = endpoint_inventory(policy);
  ASSERT_EQ(inventory.size(), 4U);
  EXPECT_EQ(inventory[0].id, inventory[1].id);
  EXPECT_NE(inventory[0].id, inventory[2].id);
  EXPECT_NE(inventory[0].id, inventory[3].id);
  // printf 'openshell:endpoint:v1\0\0\0\0\0\0\0\ntools.test\0\0\0\0\0\0\0\3/**\0\0\0\0\0\0\0\1\0\0\1\xbb' | sha256sum
  EXPECT_EQ(inventory[0].id, "endpoint:v1:6d70751e5b4c22e8ee4559fc343c295592a76300f4b9cb1e411bba8f8df907a0");
}

}  // namespace
}  // namespace openshell::policy
