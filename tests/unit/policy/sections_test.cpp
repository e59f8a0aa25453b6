#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/baseline.hpp"
#include "policy/hash.hpp"
#include "policy/normalize.hpp"
#include "policy/static_fields.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using testing::Contains;
using testing::Not;

TEST(Baseline, CA_08_TheRestrictiveDefaultIsCanonicalAndOffersNoNetwork) {
  auto policy = restrictive_default();
  const auto hash = policy_hash(policy);
  EXPECT_TRUE(admit(policy).ok());
  EXPECT_EQ(policy_hash(policy), hash);
  EXPECT_TRUE(policy.network_policies().empty());
  EXPECT_TRUE(policy.filesystem().include_workdir());
  EXPECT_THAT(policy.filesystem().read_only(), testing::ElementsAre("/bin", "/usr", "/lib", "/proc", "/dev/urandom", "/etc", "/var/log"));
  EXPECT_THAT(policy.filesystem().read_write(), testing::ElementsAre("/tmp", "/dev/null"));
  EXPECT_FALSE(policy.has_process());
}

TEST(Baseline, IS_17_EnrichesOnlyWithNetworkRulesAndNeverMovesAUsersPath) {
  auto policy = restrictive_default();
  EXPECT_FALSE(enrich_baseline(policy));
  policy.clear_filesystem();
  policy.mutable_filesystem()->add_read_only("/tmp/");
  policy.mutable_filesystem()->add_read_write("/etc");
  (*policy.mutable_network_policies())["a"].set_name("a");
  EXPECT_TRUE(enrich_baseline(policy));
  EXPECT_THAT(policy.filesystem().read_write(), Not(Contains("/tmp")));
  EXPECT_THAT(policy.filesystem().read_write(), testing::ElementsAre("/etc", "/dev/null"));
  EXPECT_THAT(policy.filesystem().read_only(), testing::ElementsAre("/tmp/", "/usr", "/lib", "/app", "/var/log", "/proc", "/dev/urandom"));
  EXPECT_FALSE(policy.filesystem().include_workdir()) << "the section was there: its value stays";
  EXPECT_FALSE(enrich_baseline(policy)) << "a second time adds nothing";
}

TEST(Baseline, AnAbsentSectionIsMadeAndRuntimePathsAreApart) {
  pb::SandboxPolicy policy;
  add_runtime_paths(policy);
  EXPECT_FALSE(policy.has_filesystem());
  (*policy.mutable_network_policies())["a"].set_name("a");
  EXPECT_TRUE(enrich_baseline(policy));
  EXPECT_TRUE(policy.filesystem().include_workdir());
  EXPECT_THAT(policy.filesystem().read_only(), Not(Contains(std::string{kRuntimeCaPath})));
  add_runtime_paths(policy);
  add_runtime_paths(policy);
  EXPECT_THAT(policy.filesystem().read_only(), Contains(std::string{kRuntimeCaPath}).Times(1));
  EXPECT_TRUE(is_baseline_path("/app/"));
  EXPECT_FALSE(is_baseline_path("/bin"));
}

TEST(Baseline, StripProviderRules) {
  pb::SandboxPolicy policy;
  EXPECT_FALSE(strip_provider_rules(policy));
  (*policy.mutable_network_policies())["_provider_x"];
  (*policy.mutable_network_policies())["mine"];
  EXPECT_TRUE(strip_provider_rules(policy));
  EXPECT_EQ(policy.network_policies().size(), 1U);
}

TEST(StaticFields, WhatALiveSandboxTook) {
  auto live = restrictive_default();
  auto next = live;
  EXPECT_TRUE(check_live_update(live, next).ok());
  (*next.mutable_network_policies())["a"].set_name("a");
  next.mutable_filesystem()->add_read_only("/opt");
  EXPECT_TRUE(check_live_update(live, next).ok()) << "network rules and more paths";
  const auto refused = [&](auto&& change) {
    auto candidate = live;
    change(candidate);
    const auto status = check_live_update(live, candidate);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string{status.message()};
  };
  EXPECT_EQ(refused([](auto& p) { p.mutable_filesystem()->set_include_workdir(false); }),
            "filesystem include_workdir cannot be changed on a live sandbox");
  EXPECT_EQ(refused([](auto& p) { p.mutable_filesystem()->mutable_read_only()->RemoveLast(); }),
            "filesystem read_only path '/var/log' cannot be removed on a live sandbox");
  EXPECT_EQ(refused([](auto& p) { p.mutable_filesystem()->clear_read_write(); }),
            "filesystem read_write path '/tmp' cannot be removed on a live sandbox");
  EXPECT_EQ(refused([](auto& p) { p.clear_filesystem(); }), "filesystem policy cannot be removed on a live sandbox");
  EXPECT_EQ(refused([](auto& p) { p.mutable_landlock()->set_compatibility("hard_requirement"); }),
            "landlock policy cannot be changed on a live sandbox (applied at startup)");
  EXPECT_EQ(refused([](auto& p) { p.mutable_process()->set_run_as_user("sandbox"); }),
            "process policy cannot be changed on a live sandbox (applied at startup)");
  pb::SandboxPolicy bare;
  next.clear_landlock();
  EXPECT_TRUE(check_live_update(bare, next).ok()) << "a baseline without the section takes one";
}

}  // namespace
}  // namespace openshell::policy
