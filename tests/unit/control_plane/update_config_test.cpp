#include "actors/gateway/update_config.hpp"

#include <gtest/gtest.h>

#include "openshell.pb.h"

namespace openshell::gateway {
namespace {

namespace pb = openshell::v1;
namespace sb = openshell::sandbox::v1;
const Caller kUser{};
const Caller kSupervisor{Caller::Kind::supervisor, {}, "box", false};

TEST(UpdateConfig, GW_ExactlyOnePayload) {
  pb::UpdateConfigRequest request;
  EXPECT_EQ(classify_update(request, kUser).status().message(), "one of policy, setting_key, or merge_operations must be provided");
  request.mutable_policy();
  EXPECT_EQ(*classify_update(request, kUser), UpdateKind::policy);
  request.set_setting_key("ocsf_json_enabled");
  EXPECT_EQ(classify_update(request, kUser).status().message(), "policy, setting_key, and merge_operations are mutually exclusive");
}

TEST(UpdateConfig, GW_ASupervisorMaySyncItsPolicyOnly) {
  pb::UpdateConfigRequest request;
  request.set_setting_key("ocsf_json_enabled");
  EXPECT_EQ(classify_update(request, kSupervisor).status().message(), "sandbox callers may only perform sandbox policy sync");
  request.set_delete_setting(true);
  EXPECT_EQ(classify_update(request, kSupervisor).status().message(), "sandbox callers cannot delete settings");
  request.set_global(true);
  EXPECT_EQ(classify_update(request, kSupervisor).status().message(), "sandbox callers cannot mutate global config");
}

sb::NetworkPolicyRule rule(const std::string& host, std::uint32_t port, const std::string& binary) {
  sb::NetworkPolicyRule out;
  auto& endpoint = *out.add_endpoints();
  endpoint.set_host(host);
  endpoint.set_port(port);
  endpoint.add_ports(port);
  out.add_binaries()->set_path(binary);
  return out;
}

pb::UpdateConfigRequest add(const std::string& name, const sb::NetworkPolicyRule& what) {
  pb::UpdateConfigRequest request;
  auto& operation = *request.add_merge_operations()->mutable_add_rule();
  operation.set_rule_name(name);
  *operation.mutable_rule() = what;
  return request;
}

TEST(UpdateConfig, GW_AMergeNeverGrantsAPairThatNobodyDeclared) {
  auto base = *merge_policy({}, add("web", rule("a.example.com", 443, "/usr/bin/curl")));
  EXPECT_EQ(base.network_policies().size(), 1U);
  EXPECT_EQ(merge_policy(base, add("web", rule("b.example.com", 443, "/usr/bin/wget"))).status().code(),
            absl::StatusCode::kFailedPrecondition);
  auto more = *merge_policy(base, add("web", rule("b.example.com", 443, "/usr/bin/curl")));
  EXPECT_EQ(more.network_policies().at("web").endpoints_size(), 2);
  EXPECT_EQ(merge_policy(base, add("_provider_x", rule("b.example.com", 443, "/x"))).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(UpdateConfig, GW_RemovingTheLastBinaryRemovesTheRule) {
  auto base = *merge_policy({}, add("web", rule("a.example.com", 443, "/usr/bin/curl")));
  pb::UpdateConfigRequest request;
  auto& operation = *request.add_merge_operations()->mutable_remove_binary();
  operation.set_rule_name("web");
  operation.set_binary_path("/usr/bin/curl");
  EXPECT_TRUE(merge_policy(base, request)->network_policies().empty()) << "a rule without binaries would hold for any";
  base.mutable_network_policies()->at("web").clear_binaries();
  EXPECT_EQ(merge_policy(base, request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(UpdateConfig, GW_ABatchIsAppliedWhollyOrNotAtAll) {
  auto request = add("web", rule("a.example.com", 443, "/usr/bin/curl"));
  request.add_merge_operations();
  EXPECT_EQ(merge_policy({}, request).status().message(), "merge_operations[1] is missing an operation");
}

}  // namespace
}  // namespace openshell::gateway
