#include "providers/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observability/text.hpp"
#include "openshell.pb.h"
#include "providers/profile.hpp"

namespace openshell::providers {
namespace {

constexpr std::int64_t kNow = 1'700'000'000;

class EnvironmentTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(directory_.data()), nullptr);
    credentials_ = *CredentialStore::from_file(directory_ + "/kek");
  }
  void TearDown() override { (void)::system(("rm -rf " + directory_).c_str()); }

  Provider provider(const std::string& name, const std::map<std::string, std::string>& values, const std::string& type = "generic") {
    Provider out;
    out.id = storage::new_uuid();
    out.name = name;
    out.workspace = "default";
    out.type = type;
    EXPECT_TRUE(store_
                    ->write_and_wait([&](storage::Transaction& tx) -> absl::Status {
                      for (const auto& [key, value] : values) {
                        auto handle = credentials_->store(tx, {out.id, name, key}, Secret{value});
                        if (!handle.ok()) return handle.status();
                        out.credentials[key] = {*handle, storage::new_uuid(), std::nullopt};
                      }
                      auto row = tx.create(to_row(out));
                      if (row.ok()) out = *from_row(*row);
                      return row.status();
                    })
                    .ok());
    return out;
  }
  absl::StatusOr<Environment> environment_of(const std::vector<Provider>& attached, const PolicyBindings& bindings = {},
                                             bool supported = true) {
    absl::StatusOr<Environment> out = absl::UnknownError("not run");
    (void)store_->read_and_wait([&](storage::Transaction& tx) {
      out = environment(tx, *credentials_, attached, bindings, {"sandbox", kNow, supported});
      return absl::OkStatus();
    });
    return out;
  }

  std::string directory_ = "/tmp/openshell-environment-XXXXXX";
  std::unique_ptr<storage::Store> store_ = *storage::open_store("sqlite::memory:");
  std::unique_ptr<CredentialStore> credentials_;
};

TEST_F(EnvironmentTest, AGenericCredentialIsDeliveredUnboundUnlessThePolicyBindsIt) {
  const auto api = provider("api-server", {{"API_TOKEN", "secret"}});
  auto unbound = environment_of({api});
  ASSERT_TRUE(unbound.ok());
  EXPECT_EQ(unbound->values.at("API_TOKEN").reveal(), "secret");
  EXPECT_TRUE(unbound->bindings.empty());
  EXPECT_TRUE(unbound->non_secret_keys.empty());
  EXPECT_EQ(unbound->readiness, Readiness::kUnspecified);
  auto bound = environment_of(
      {api}, {{"api-server", {{"b.example.com", 443, ""}, {"a.example.com", 443, "/v1/**"}, {"a.example.com", 443, "/v1/**"}}}});
  ASSERT_TRUE(bound.ok());
  const auto& binding = bound->bindings.at("API_TOKEN");
  EXPECT_THAT(binding.endpoints,
              testing::ElementsAre(BindingEndpoint{"a.example.com", 443, "/v1/**"}, BindingEndpoint{"b.example.com", 443, ""}));
  EXPECT_EQ(binding.credential_identity, cat(api.id, ":API_TOKEN"));
  EXPECT_NE(bound->revision, unbound->revision);
}

TEST_F(EnvironmentTest, AnExpiredCredentialIsLeftOutAndSaidToBe) {
  auto api = provider("api-server", {{"OLD", "x"}, {"NEW", "y"}});
  api.credentials.at("OLD").expires_at = kNow;
  api.credentials.at("NEW").expires_at = kNow + 1;
  auto env = environment_of({api});
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->values.size(), 1U);
  EXPECT_EQ(env->expires_at.at("NEW"), kNow + 1);
  EXPECT_EQ(env->readiness, Readiness::kCredentialExpired);
}

TEST_F(EnvironmentTest, AProviderWithoutItsProfileIsWithheldAndDoesNotPoisonTheOthers) {
  auto env = environment_of({provider("crm", {{"CRM_TOKEN", "x"}}, "my-crm"), provider("api-server", {{"API_TOKEN", "y"}})});
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->values.size(), 1U);
  EXPECT_TRUE(env->values.contains("API_TOKEN"));
  EXPECT_EQ(env->readiness, Readiness::kCredentialsWithheld);
}

std::shared_ptr<const Profile> profile_with(const std::string& host, bool stable = false) {
  Profile out;
  out.row_id = "row";
  out.content.set_id("my-crm");
  auto& credential = *out.content.add_credentials();
  credential.set_name("token");
  credential.add_env_vars("CRM_TOKEN");
  credential.set_auth_style("header");
  credential.set_header_name("x-api-key");
  credential.set_stable_placeholder(stable);
  if (host.empty()) return std::make_shared<const Profile>(out);
  auto& endpoint = *out.content.add_endpoints();
  endpoint.set_host(host);
  endpoint.add_ports(443);
  endpoint.add_ports(8443);
  return std::make_shared<const Profile>(out);
}

TEST_F(EnvironmentTest, AProfileBindsItsCredentialsToItsEndpointsAndSaysWhereTheyGo) {
  auto crm = provider("crm", {{"CRM_TOKEN", "x"}, {"LEFT_OVER", "y"}}, "my-crm");
  crm.profile = profile_with("crm.example.com");
  auto env = environment_of({crm});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->values.size(), 1U) << "a key that the profile does not declare stays";
  EXPECT_THAT(env->bindings.at("CRM_TOKEN").endpoints,
              testing::ElementsAre(BindingEndpoint{"crm.example.com", 443, ""}, BindingEndpoint{"crm.example.com", 8443, ""}));
  EXPECT_EQ(env->placements.at("CRM_TOKEN").header_name, "x-api-key");
  EXPECT_EQ(env->readiness, Readiness::kCredentialsWithheld);
}

TEST_F(EnvironmentTest, AnEndpointlessProfileIsWithheldUntilThePolicyBindsIt) {
  auto crm = provider("crm", {{"CRM_TOKEN", "x"}}, "my-crm");
  crm.profile = profile_with("");
  EXPECT_TRUE(environment_of({crm})->values.empty());
  EXPECT_EQ(environment_of({crm})->readiness, Readiness::kCredentialsWithheld);
  auto bound = environment_of({crm}, {{"crm", {{"api.example.com", 443, "/v1/**"}}}});
  EXPECT_THAT(bound->bindings.at("CRM_TOKEN").endpoints, testing::ElementsAre(BindingEndpoint{"api.example.com", 443, "/v1/**"}));
  crm.profile = profile_with("crm.example.com");
  EXPECT_TRUE(absl::IsFailedPrecondition(environment_of({crm}, {{"crm", {{"api.example.com", 443, ""}}}}).status()));
  crm.config["CRM_BASE_URL"] = "https://elsewhere.example";
  EXPECT_TRUE(environment_of({crm})->values.empty()) << "its profile's endpoints are not where this provider lives";
}

TEST_F(EnvironmentTest, AStablePlaceholderNeedsASupervisorThatKnowsIt) {  // CR-50
  auto crm = provider("crm", {{"CRM_TOKEN", "x"}}, "my-crm");
  crm.profile = profile_with("crm.example.com", true);
  auto env = environment_of({crm});
  const auto& binding = env->bindings.at("CRM_TOKEN");
  EXPECT_EQ(binding.workload_credential_handle.size(), 64U);
  EXPECT_EQ(binding.credential_identity, cat("stable:", binding.workload_credential_handle));
  EXPECT_THAT(env->stable_keys, testing::ElementsAre("CRM_TOKEN"));
  absl::StatusOr<Environment> old = absl::UnknownError("not run");
  (void)store_->read_and_wait([&](storage::Transaction& tx) {
    old = environment(tx, *credentials_, {crm}, {}, {"sandbox", kNow, true, false});
    return absl::OkStatus();
  });
  EXPECT_TRUE(old->values.empty());
  EXPECT_EQ(old->readiness, Readiness::kCredentialsWithheld);
}

TEST_F(EnvironmentTest, ASupervisorWithoutBindingSupportGetsNoCredential) {
  auto env = environment_of({provider("api-server", {{"API_TOKEN", "y"}})}, {}, false);
  ASSERT_TRUE(env.ok());
  EXPECT_TRUE(env->values.empty());
}

TEST_F(EnvironmentTest, AValueThatCanNotBeReadFailsTheWholeSet) {
  auto api = provider("api-server", {{"A", "1"}, {"B", "2"}});
  api.credentials.at("B").handle.handle.back() ^= 1;
  EXPECT_FALSE(environment_of({api}).ok());
}

TEST_F(EnvironmentTest, TheRevisionFollowsEveryInputAndNothingElse) {
  auto api = provider("api-server", {{"API_TOKEN", "x"}});
  const auto other = provider("other", {{"OTHER", "x"}});
  const auto revision = environment_revision({api}, {});
  EXPECT_EQ(environment_revision({api}, {}), revision);
  std::vector<std::uint64_t> seen{revision,
                                  environment_revision({}, {}),
                                  environment_revision({api, other}, {}),
                                  environment_revision({other, api}, {}),
                                  environment_revision({api}, {{"api-server", {{"h", 1, ""}}}}),
                                  environment_revision({api}, {{"api-server", {{"h", 2, ""}}}})};
  auto changed = api;
  ++changed.resource_version;
  seen.push_back(environment_revision({changed}, {}));
  changed = api;
  changed.id = storage::new_uuid();
  seen.push_back(environment_revision({changed}, {}));
  changed = api;
  changed.credentials.at("API_TOKEN").expires_at = kNow;
  seen.push_back(environment_revision({changed}, {}));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_NE(seen[i], 0U);
    for (std::size_t j = i + 1; j < seen.size(); ++j) EXPECT_NE(seen[i], seen[j]) << i << " " << j;
  }
}

TEST_F(EnvironmentTest, AttachingChecksNamesNumberAndKeys) {
  provider("a", {{"TOKEN", "x"}});
  provider("b", {{"TOKEN", "x"}});
  provider("c", {{"OTHER", "x"}});
  const auto check = [&](const std::vector<std::string>& names) {
    return store_->read_and_wait([&](storage::Transaction& tx) { return check_attachment(tx, "default", names); });
  };
  EXPECT_TRUE(check({"a", "c", "a"}).ok());
  EXPECT_EQ(check({"a", "b"}).message(),
            "credential env key 'TOKEN' is provided by both provider 'a' and provider 'b'; use provider-specific env names");
  EXPECT_EQ(check({"missing"}).message(), "provider 'missing' not found");
  EXPECT_TRUE(absl::IsInvalidArgument(check({""})));
  std::vector<std::string> many;
  for (int i = 0; i < 33; ++i) many.push_back(cat("p", i));
  EXPECT_EQ(check(many).message(), "providers list exceeds maximum (33 > 32)");
}

}  // namespace
}  // namespace openshell::providers
