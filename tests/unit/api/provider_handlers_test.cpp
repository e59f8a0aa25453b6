// Providers and their profiles, by their handlers on a store in memory.
#include <gmock/gmock.h>

#include <cstdlib>

#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "openshell.pb.h"
#include "providers/provider.hpp"
#include "tests/unit/api/handler_call.hpp"

namespace openshell::api {
namespace {

using namespace openshell::v1;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> errors_of(const google::protobuf::RepeatedPtrField<ProviderProfileDiagnostic>& all) {
  std::vector<std::string> out;
  for (const auto& one : all) out.push_back(one.field() + ": " + one.message());
  return out;
}

ProviderProfile crm() {
  ProviderProfile out;
  out.set_id("my-crm");
  out.set_display_name("My CRM");
  out.set_category(PROVIDER_PROFILE_CATEGORY_OTHER);
  auto& token = *out.add_credentials();
  token.set_name("token");
  token.add_env_vars("CRM_TOKEN");
  token.set_required(true);
  auto& extra = *out.add_credentials();
  extra.set_name("extra");
  extra.add_env_vars("CRM_EXTRA");
  auto& endpoint = *out.add_endpoints();
  endpoint.set_host("crm.example.com");
  endpoint.set_port(443);
  endpoint.set_protocol("rest");
  endpoint.set_access(openshell::sandbox::v1::NETWORK_ACCESS_PRESET_READ_WRITE);
  out.add_binaries()->set_path("/usr/bin/curl");
  return out;
}

class Providers : public testing::Test {
 protected:
  Providers() {
    EXPECT_NE(::mkdtemp(directory_.data()), nullptr);
    credentials_ = *providers::CredentialStore::from_file(directory_ + "/kek");
    EXPECT_TRUE(ensure_default_workspace(*store_).ok());
    ProviderHandlerOptions options;
    options.store = store_.get();
    options.credentials = credentials_.get();
    options.attached_to = [this](storage::Transaction&, const std::string&, const std::string&) { return attached_; };
    options.check_attached = [this](storage::Transaction&, const std::string&, const std::vector<std::string>&) { return conflict_; };
    options.receipts = [](const std::string&, const std::vector<std::string>& sandboxes, const std::string& provider,
                          const std::string& mutation, const auto& then) {
      std::vector<ProviderMutationReceipt> receipts;
      for (const auto& sandbox : sandboxes) {
        auto& receipt = receipts.emplace_back();
        receipt.set_mutation_id(mutation);
        receipt.set_provider(provider);
        receipt.mutable_desired()->set_sandbox(sandbox);
      }
      then(std::move(receipts));
    };
    options.changed = [this](const std::string& workspace, const std::string& provider) { changes_.push_back(workspace + "/" + provider); };
    add_provider_handlers(router_, options);
  }
  ~Providers() override { (void)std::system(("rm -rf " + directory_).c_str()); }

  ImportProviderProfilesResponse import(const std::vector<ProviderProfile>& profiles, const std::string& workspace = "") {
    ImportProviderProfilesRequest request;
    if (!workspace.empty()) request.mutable_workspace_scope()->set_workspace(workspace);
    for (const auto& profile : profiles) {
      auto& item = *request.add_profiles();
      *item.mutable_profile() = profile;
      item.set_source("test.yaml");
    }
    auto answer = call<ImportProviderProfilesResponse>(router_, "ImportProviderProfiles", request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or(ImportProviderProfilesResponse{});
  }
  absl::StatusOr<datamodel::v1::Provider> create(const std::string& name, const std::string& type,
                                                 const std::map<std::string, std::string>& values,
                                                 const std::string& profile_workspace = "") {
    CreateProviderRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    auto& provider = *request.mutable_provider();
    provider.mutable_metadata()->set_name(name);
    provider.set_type(type);
    provider.set_profile_workspace(profile_workspace);
    for (const auto& [key, value] : values) (*provider.mutable_credentials())[key] = value;
    auto answer = call<ProviderResponse>(router_, "CreateProvider", request);
    if (!answer.ok()) return answer.status();
    return answer->provider();
  }
  UpdateProviderRequest change(const std::string& name, const std::map<std::string, std::string>& values = {}) {
    UpdateProviderRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.mutable_provider()->mutable_metadata()->set_name(name);
    for (const auto& [key, value] : values) (*request.mutable_provider()->mutable_credentials())[key] = value;
    return request;
  }
  absl::StatusOr<ProviderResponse> update(const UpdateProviderRequest& request) {
    return call<ProviderResponse>(router_, "UpdateProvider", request);
  }
  std::uint64_t stored(std::string_view type) {
    std::uint64_t out = 0;
    EXPECT_TRUE(store_
                    ->read_and_wait([&](storage::Transaction& tx) -> absl::Status {
                      auto counted = tx.count(type, std::nullopt);
                      if (counted.ok()) out = *counted;
                      return counted.status();
                    })
                    .ok());
    return out;
  }
  std::string value_of(const std::string& name, const std::string& key) {
    std::string out;
    EXPECT_TRUE(store_
                    ->read_and_wait([&](storage::Transaction& tx) -> absl::Status {
                      auto provider = providers::find_provider(tx, "default", name);
                      if (!provider.ok()) return provider.status();
                      auto value = credentials_->resolve(tx, {(*provider)->id, name, key}, (*provider)->credentials.at(key).handle);
                      if (value.ok()) out = std::string{value->reveal()};
                      return value.status();
                    })
                    .ok());
    return out;
  }
  absl::StatusOr<DeletionOutcome> remove_profile(const std::string& id, const std::string& workspace = "", bool allow_missing = false) {
    DeleteProviderProfileRequest request;
    if (!workspace.empty()) request.mutable_workspace_scope()->set_workspace(workspace);
    request.set_id(id);
    request.set_allow_missing(allow_missing);
    auto answer = call<DeleteProviderProfileResponse>(router_, "DeleteProviderProfile", request);
    if (!answer.ok()) return answer.status();
    return answer->outcome();
  }
  absl::StatusOr<ProviderProfile> profile(const std::string& id, const std::string& workspace = "default") {
    GetProviderProfileRequest request;
    if (!workspace.empty()) request.mutable_workspace_scope()->set_workspace(workspace);
    request.set_id(id);
    auto answer = call<ProviderProfileResponse>(router_, "GetProviderProfile", request);
    if (!answer.ok()) return answer.status();
    return answer->profile();
  }

  std::string directory_ = "/tmp/openshell-providers-XXXXXX";
  std::unique_ptr<storage::Store> store_ = *storage::open_store("sqlite::memory:");
  std::unique_ptr<providers::CredentialStore> credentials_;
  std::vector<std::string> attached_;
  absl::Status conflict_;
  std::vector<std::string> changes_;
  Router router_;
};

TEST_F(Providers, NeedAProfileOfTheirType) {  // GW-20
  EXPECT_THAT(create("crm", "my-crm", {{"CRM_TOKEN", "x"}}).status().ToString(),
              HasSubstr("provider profile 'my-crm' was not found in the requested scope; import a matching profile"));
  ASSERT_TRUE(import({crm()}).imported());
  const auto made = create("crm", " My-CRM ", {{"CRM_TOKEN", "abc"}});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->type(), "my-crm");
  EXPECT_EQ(made->credentials().at("CRM_TOKEN"), "REDACTED");
  EXPECT_THAT(create("c2", "my-crm", {{"CRM_TOKEN", "x"}, {"OTHER", "x"}}).status().ToString(),
              HasSubstr("provider credentials are not declared by profile 'my-crm': OTHER"));
  EXPECT_THAT(create("c3", "my-crm", {{"CRM_EXTRA", "x"}}).status().ToString(),
              HasSubstr("provider profile 'my-crm' requires static credentials: CRM_TOKEN"));
}

TEST_F(Providers, OfAProfileWithoutRequiredCredentialsMayBeEmpty) {
  auto pypi = crm();
  pypi.set_id("pypi");
  pypi.clear_credentials();
  ASSERT_TRUE(import({pypi}).imported());
  EXPECT_TRUE(create("index", "pypi", {}).ok());
  EXPECT_THAT(create("empty", "generic", {}).status().ToString(), HasSubstr("provider.credentials must not be empty"));
}

TEST_F(Providers, UpdateMergesAndLeavesNoOldSecret) {
  ASSERT_TRUE(import({crm()}).imported());
  ASSERT_TRUE(create("crm", "my-crm", {{"CRM_TOKEN", "one"}, {"CRM_EXTRA", "extra"}}).ok());
  const auto secrets = stored(storage::types::kEncryptedCredential);
  auto request = change("crm", {{"CRM_TOKEN", "two"}, {"CRM_EXTRA", ""}});
  (*request.mutable_provider()->mutable_config())["region"] = "eu";
  auto updated = update(request);
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->provider().metadata().resource_version(), 2U);
  EXPECT_FALSE(updated->provider().credentials().contains("CRM_EXTRA"));
  EXPECT_EQ(updated->provider().config().at("region"), "eu");
  EXPECT_FALSE(updated->mutation_id().empty());
  EXPECT_EQ(value_of("crm", "CRM_TOKEN"), "two");
  EXPECT_EQ(stored(storage::types::kEncryptedCredential), secrets - 1);
  EXPECT_THAT(changes_, Contains("default/crm"));
}

TEST_F(Providers, UpdateRefusesWhatMustNotChange) {
  ASSERT_TRUE(import({crm()}).imported());
  ASSERT_TRUE(create("crm", "my-crm", {{"CRM_TOKEN", "one"}}).ok());
  auto other = change("crm");
  other.mutable_provider()->set_type("generic");
  EXPECT_THAT(update(other).status().ToString(), HasSubstr("provider type cannot be changed; delete and recreate the provider"));
  auto same = change("crm");
  same.mutable_provider()->set_type("MY-CRM");
  EXPECT_TRUE(update(same).ok());
  auto scope = change("crm");
  scope.mutable_provider()->set_profile_workspace("default");
  EXPECT_THAT(update(scope).status().ToString(), HasSubstr("profile_workspace cannot be changed"));
  EXPECT_THAT(update(change("crm", {{"CRM_TOKEN", ""}})).status().ToString(), HasSubstr("requires static credentials: CRM_TOKEN"));
  EXPECT_THAT(update(change("crm", {{"OTHER", "x"}})).status().ToString(), HasSubstr("not declared by profile 'my-crm': OTHER"));
  EXPECT_EQ(update(change("nope")).status(), absl::NotFoundError("provider not found"));
  EXPECT_THAT(update(change("")).status().ToString(), HasSubstr("provider.name is required"));
  auto handles = change("crm");
  (*handles.mutable_provider()->mutable_credential_handles())["X"].set_driver("d");
  EXPECT_TRUE(absl::IsInvalidArgument(update(handles).status()));
  EXPECT_EQ(value_of("crm", "CRM_TOKEN"), "one") << "a refused update changes no value";
}

TEST_F(Providers, UpdateWithAStaleVersionLosesAndChangesNothing) {
  ASSERT_TRUE(create("g", "generic", {{"TOKEN", "one"}}).ok());
  auto fresh = change("g", {{"TOKEN", "two"}});
  fresh.mutable_provider()->mutable_metadata()->set_resource_version(1);
  ASSERT_TRUE(update(fresh).ok());
  auto stale = change("g", {{"TOKEN", "three"}});
  stale.mutable_provider()->mutable_metadata()->set_resource_version(1);
  EXPECT_EQ(update(stale).status().message(), "provider was modified concurrently (current resource_version: 2)");
  EXPECT_TRUE(absl::IsAborted(update(stale).status()));
  EXPECT_EQ(value_of("g", "TOKEN"), "two");
  EXPECT_EQ(stored(storage::types::kEncryptedCredential), 1U);
}

TEST_F(Providers, UpdateSetsAndClearsExpirations) {
  ASSERT_TRUE(create("g", "generic", {{"TOKEN", "one"}}).ok());
  auto set = change("g");
  (*set.mutable_credential_expiration_times())["TOKEN"].set_seconds(4'000'000'000);
  EXPECT_EQ(update(set)->provider().credential_expiration_times().at("TOKEN").seconds(), 4'000'000'000);
  auto both = set;
  both.add_clear_credential_expiration_keys("TOKEN");
  EXPECT_THAT(update(both).status().ToString(), HasSubstr("credential expiration for 'TOKEN' cannot be both set and cleared"));
  auto clear = change("g");
  clear.add_clear_credential_expiration_keys("TOKEN");
  EXPECT_TRUE(update(clear)->provider().credential_expiration_times().empty());
}

TEST_F(Providers, UpdateAnswersAReceiptForEachSandboxThatHasIt) {
  ASSERT_TRUE(create("g", "generic", {{"TOKEN", "one"}}).ok());
  attached_ = {"a", "b"};
  auto answer = update(change("g", {{"TOKEN", "two"}}));
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(answer->target_receipts_size(), 2);
  EXPECT_EQ(answer->target_receipts(1).mutation_id(), answer->mutation_id());
  conflict_ = absl::FailedPreconditionError("sandbox 'a': credential env key 'K' is provided by both");
  EXPECT_THAT(update(change("g", {{"K", "x"}})).status().ToString(),
              HasSubstr("provider update would create credential env key conflict on sandbox 'a': credential env key 'K'"));
}

TEST_F(Providers, ImportStoresAllOrNothing) {  // GW-19
  auto bad = crm();
  bad.set_id("Bad_Id");
  const auto refused = import({crm(), bad});
  EXPECT_FALSE(refused.imported());
  EXPECT_THAT(errors_of(refused.diagnostics()), ElementsAre(HasSubstr("id: provider profile id must be lowercase kebab-case")));
  EXPECT_EQ(stored(storage::types::kProviderProfile), 0U);
  const auto stored_now = import({crm()});
  EXPECT_TRUE(stored_now.imported());
  EXPECT_EQ(stored_now.profiles(0).resource_version(), 1U);
  EXPECT_EQ(stored_now.profiles(0).source(), "user");
  EXPECT_EQ(stored_now.profiles(0).scope(), "platform");
  const auto again = import({crm()});
  EXPECT_FALSE(again.imported());
  EXPECT_THAT(errors_of(again.diagnostics()), ElementsAre("id: custom provider profile 'my-crm' already exists"));
  EXPECT_THAT(errors_of(import({}).diagnostics()), ElementsAre("profiles: at least one provider profile is required"));
}

TEST_F(Providers, AWorkspaceProfileShadowsThePlatformsForThoseWhoPointThere) {
  ASSERT_TRUE(import({crm()}).imported());
  auto own = crm();
  own.mutable_credentials(0)->set_required(false);
  const auto shadowing = import({own}, "default");
  EXPECT_TRUE(shadowing.imported());
  EXPECT_EQ(shadowing.diagnostics(0).severity(), "warning");
  EXPECT_TRUE(create("w", "my-crm", {}, "default").ok()) << "the workspace's entry needs no token";
  EXPECT_FALSE(create("p", "my-crm", {}).ok()) << "the platform's does";
  EXPECT_EQ(profile("my-crm")->scope(), "workspace");
  EXPECT_EQ(profile("my-crm", "")->scope(), "platform");
  ListProviderProfilesRequest request;
  request.mutable_workspace_scope()->set_workspace("default");
  request.set_page_size(1);
  auto first = call<ListProviderProfilesResponse>(router_, "ListProviderProfiles", request);
  ASSERT_EQ(first->profiles_size(), 1);
  EXPECT_EQ(first->profiles(0).scope(), "platform");
  request.set_page_token(first->next_page_token());
  auto second = call<ListProviderProfilesResponse>(router_, "ListProviderProfiles", request);
  ASSERT_EQ(second->profiles_size(), 1);
  EXPECT_EQ(second->profiles(0).scope(), "workspace");
  EXPECT_EQ(second->next_page_token(), "");
}

TEST_F(Providers, AProfileInUseStays) {
  ASSERT_TRUE(import({crm()}).imported());
  ASSERT_TRUE(create("crm", "my-crm", {{"CRM_TOKEN", "x"}}, "default").ok());
  EXPECT_EQ(remove_profile("my-crm").status(),
            absl::FailedPreconditionError("provider profile 'my-crm' is in use by providers: default/crm"));
  DeleteProviderRequest gone;
  gone.mutable_workspace_scope()->set_workspace("default");
  gone.set_name("crm");
  ASSERT_TRUE(call<DeleteProviderResponse>(router_, "DeleteProvider", gone).ok());
  EXPECT_EQ(*remove_profile("my-crm"), DELETION_OUTCOME_COMPLETED);
  EXPECT_EQ(remove_profile("my-crm").status(), absl::NotFoundError("provider profile not found"));
  EXPECT_EQ(*remove_profile("my-crm", "", true), DELETION_OUTCOME_ALREADY_ABSENT);
}

TEST_F(Providers, AProfileIsUpdatedByItsVersion) {
  ASSERT_TRUE(import({crm()}).imported());
  UpdateProviderProfilesRequest request;
  request.set_id("my-crm");
  *request.mutable_profile()->mutable_profile() = crm();
  auto versionless = call<UpdateProviderProfilesResponse>(router_, "UpdateProviderProfiles", request);
  EXPECT_FALSE(versionless->updated());
  EXPECT_THAT(errors_of(versionless->diagnostics()), ElementsAre(HasSubstr("requires a non-zero resource_version")));
  request.set_expected_resource_version(1);
  request.mutable_profile()->mutable_profile()->set_display_name("Renamed");
  auto updated = call<UpdateProviderProfilesResponse>(router_, "UpdateProviderProfiles", request);
  ASSERT_TRUE(updated->updated());
  EXPECT_EQ(updated->profile().resource_version(), 2U);
  EXPECT_EQ(profile("my-crm")->display_name(), "Renamed");
  EXPECT_EQ(call<UpdateProviderProfilesResponse>(router_, "UpdateProviderProfiles", request).status().message(),
            "provider profile was modified concurrently (current resource_version: 2)");
  request.set_id("other");
  EXPECT_THAT(errors_of(call<UpdateProviderProfilesResponse>(router_, "UpdateProviderProfiles", request)->diagnostics()),
              Contains("id: provider profile update target 'other' does not match payload id 'my-crm'"));
}

TEST_F(Providers, GenericIsThereWithoutBeingListed) {
  EXPECT_EQ(profile("generic")->display_name(), "Generic");
  EXPECT_EQ(profile(" GENERIC ")->id(), "generic");
  ListProviderProfilesRequest request;
  request.mutable_workspace_scope()->set_workspace("default");
  EXPECT_EQ(call<ListProviderProfilesResponse>(router_, "ListProviderProfiles", request)->profiles_size(), 0);
  EXPECT_EQ(remove_profile("generic").status(), absl::NotFoundError("provider profile not found"));
  EXPECT_EQ(profile("gh").status(), absl::NotFoundError("provider profile not found"));
  auto real = crm();
  real.set_id("generic");
  ASSERT_TRUE(import({real}).imported());
  EXPECT_EQ(profile("generic")->display_name(), "My CRM");
}

TEST_F(Providers, ThePlatformsProfilesAreForItsAdmins) {
  const As bob{"bob", true, false};
  EXPECT_TRUE(absl::IsPermissionDenied(
      call<ListProviderProfilesResponse>(router_, "ListProviderProfiles", ListProviderProfilesRequest{}, bob).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(
      call<LintProviderProfilesResponse>(router_, "LintProviderProfiles", LintProviderProfilesRequest{}, bob).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(
      call<ImportProviderProfilesResponse>(router_, "ImportProviderProfiles", ImportProviderProfilesRequest{}, bob).status()));
}

}  // namespace
}  // namespace openshell::api
