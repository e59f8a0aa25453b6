#include "providers/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observability/text.hpp"

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
      out = environment(tx, *credentials_, attached, bindings, kNow, supported);
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
