// What a profile means, what is wrong with one, and its file form.
#include "providers/profile.hpp"

#include <gmock/gmock.h>

#include <boost/json/serialize.hpp>

#include "providers/profile_file.hpp"
#include "providers/profile_lint.hpp"
#include "sandbox.pb.h"

namespace openshell::providers {
namespace {

using namespace openshell::v1;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGithub = R"(
id: github
display_name: GitHub
category: source-control
credentials:
  - name: api_token
    env_vars: [GITHUB_TOKEN, GH_TOKEN]
    required: true
    auth_style: bearer
    header_name: authorization
endpoints:
  - {host: api.github.com, port: 443, protocol: rest, access: read-write, enforcement: enforce}
  - {host: "*.githubusercontent.com", ports: [443, 8443], protocol: rest, access: read-only, enforcement: enforce}
binaries: [/usr/bin/git, {path: /usr/bin/gh}]
discovery: {credentials: [api_token]}
)";

ProviderProfile github() { return *parse_profile(kGithub, "github.yaml"); }

std::vector<std::string> faults(const ProviderProfile& profile) {
  std::vector<std::string> out;
  for (const auto& one : lint({{"f", &profile}})) out.push_back(one.field() + ": " + one.message());
  return out;
}

Provider with(ProviderProfile profile, const std::map<std::string, std::string>& config = {}) {
  Provider out;
  out.name = "Work GitHub!";
  out.type = profile.id();
  out.config = config;
  out.profile = std::make_shared<const Profile>(Profile{"row", "", std::move(profile)});
  return out;
}

TEST(ProfileFile, IsReadAndWrittenWithoutLoss) {  // GW-18
  const auto profile = github();
  EXPECT_EQ(profile.category(), PROVIDER_PROFILE_CATEGORY_SOURCE_CONTROL);
  EXPECT_EQ(profile.binaries(1).path(), "/usr/bin/gh");
  EXPECT_EQ(profile.endpoints(0).access(), openshell::sandbox::v1::NETWORK_ACCESS_PRESET_READ_WRITE);
  EXPECT_THAT(faults(profile), IsEmpty());
  auto document = profile_document(profile);
  ASSERT_TRUE(document.ok());
  auto again = parse_profile(boost::json::serialize(*document), "again.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), profile.SerializeAsString());
}

TEST(ProfileFile, NamesUnknownKeysTheirPlaceAndTheNearest) {
  const auto unknown = parse_profile("id: x\ndisplay_name: X\nendpoint: []\n", "x.yaml").status();
  EXPECT_THAT(unknown.ToString(), HasSubstr("x.yaml:3:1: unknown field 'endpoint' in provider profile; did you mean 'endpoints'?"));
  EXPECT_THAT(parse_profile("id: x\ndisplay_name: X\ncategory: sauce\n", "x").status().ToString(),
              HasSubstr("unsupported provider profile category: sauce"));
  EXPECT_THAT(
      parse_profile("id: x\ndisplay_name: X\nbinaries: [{path: /a, harness: true}]\n", "x").status().ToString(),
      HasSubstr("unsupported provider profile binary fields: harness; binaries accept only 'path' and the deprecated 'harness' field "
                "was removed in 0.1.0"));
  EXPECT_THAT(parse_profile("id: x\ndisplay_name: X\nendpoints: [{host: h, port: 443, tls: terminate}]\n", "x").status().code(),
              absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(parse_profile("display_name: X\n", "x").ok());
  EXPECT_FALSE(parse_profile("[]", "x").ok());
  EXPECT_FALSE(parse_profile(std::string(kMaxProfileTextBytes + 1, ' '), "x").ok());
}

TEST(ProfileFile, KeepsDurationsExactlyAndTakesTheOlderForm) {
  const auto refresh = [](const std::string& keys) {
    return parse_profile("id: x\ndisplay_name: X\ncredentials:\n  - name: t\n    refresh: {strategy: oauth2-refresh-token, " + keys + "}\n",
                         "x");
  };
  EXPECT_EQ(refresh("max_lifetime: \"0.5s\"")->credentials(0).refresh().max_lifetime().nanos(), 500'000'000);
  EXPECT_EQ(refresh("max_lifetime_seconds: 60")->credentials(0).refresh().max_lifetime().seconds(), 60);
  EXPECT_THAT(refresh("refresh_before: \"1s\", refresh_before_seconds: 1").status().ToString(),
              HasSubstr("refresh_before and refresh_before_seconds cannot both be set"));
  EXPECT_THAT(refresh("refresh_before_seconds: -1").status().ToString(), HasSubstr("must be greater than or equal to 0"));
  EXPECT_THAT(refresh("refresh_before: \"-1s\"").status().ToString(), HasSubstr("must be a valid non-negative duration"));
  EXPECT_THAT(faults(*refresh("max_lifetime: \"0s\"")), Contains(HasSubstr("max_lifetime must be greater than zero when present")));
}

TEST(ProfileLint, KnowsWhichIdsAreWritten) {
  for (const char* id : {"My_API", "a--b", "-acme", "acme-", " acme", "ACME"}) {
    auto profile = github();
    profile.set_id(id);
    EXPECT_THAT(faults(profile), Contains(HasSubstr("provider profile id must be lowercase kebab-case"))) << id;
  }
  auto profile = github();
  profile.set_id("acme-1");
  EXPECT_THAT(faults(profile), IsEmpty());
  profile.set_id(" ");
  EXPECT_THAT(faults(profile), Contains("id: provider profile id is required"));
  const auto good = github();
  EXPECT_THAT(lint({{"a", &good}, {"b", &good}}).at(0).message(), "duplicate provider profile id: github");
}

TEST(ProfileLint, SaysEverythingAtOnce) {
  auto profile = github();
  profile.set_id("");
  profile.mutable_credentials(0)->add_env_vars("GH_TOKEN");
  profile.mutable_credentials(0)->add_env_vars("v7_TOKEN");
  profile.mutable_endpoints(0)->set_port(0);
  profile.mutable_binaries(0)->set_path(" ");
  EXPECT_THAT(faults(profile),
              ElementsAre("id: provider profile id is required", "credentials.env_vars: duplicate credential env var 'GH_TOKEN'",
                          "credentials.env_vars: credential env var 'v7_TOKEN' uses reserved OpenShell placeholder revision namespace",
                          "endpoints[0]: invalid endpoint 'api.github.com:0'", "binaries[0]: binary path must not be empty"));
}

TEST(ProfileLint, WantsCredentialedEndpointsInspected) {
  auto profile = *parse_profile(
      "id: db\ndisplay_name: DB\ncredentials: [{name: p, env_vars: [P]}]\nendpoints: [{host: db.example.com, port: 5432}]\n", "f");
  EXPECT_THAT(faults(profile), ElementsAre(HasSubstr("credentialed endpoint 'db.example.com:5432' uses L4-only; configure L7 inspection")));
  profile.mutable_endpoints(0)->set_allow_uninspected_credentials(true);
  EXPECT_THAT(faults(profile), IsEmpty());
  profile.mutable_endpoints(0)->set_allow_uninspected_credentials(false);
  profile.clear_credentials();
  EXPECT_THAT(faults(profile), IsEmpty());
}

TEST(ProfileLint, KnowsWhatTheStsStrategyMakes) {
  auto profile = *parse_profile(R"(
id: aws
display_name: AWS
credentials:
  - name: access_key_id
    env_vars: [AWS_ACCESS_KEY_ID]
    refresh:
      strategy: aws_sts_assume_role
      additional_outputs: [{output: secret_access_key, credential: secret}, {output: session_token, credential: session}]
  - {name: secret, env_vars: [AWS_SECRET_ACCESS_KEY]}
  - {name: session, env_vars: [AWS_SESSION_TOKEN]}
)",
                                "aws.yaml");
  EXPECT_THAT(faults(profile), IsEmpty());
  auto missing = profile;
  missing.mutable_credentials(0)->mutable_refresh()->mutable_additional_outputs()->RemoveLast();
  EXPECT_THAT(faults(missing), Contains(HasSubstr("strategy aws_sts_assume_role requires additional output 'session_token'")));
  auto unknown = profile;
  unknown.mutable_credentials(0)->mutable_refresh()->mutable_additional_outputs(0)->set_credential("nobody");
  EXPECT_THAT(faults(unknown), Contains(HasSubstr("references unknown credential 'nobody'")));
  auto named = profile;
  named.mutable_credentials(1)->set_env_vars(0, "FOO");
  EXPECT_THAT(faults(named),
              Contains(HasSubstr("refresh output 'secret_access_key' must map to env var AWS_SECRET_ACCESS_KEY, found FOO")));
  auto primary = profile;
  primary.mutable_credentials(0)->set_env_vars(0, "BAR");
  EXPECT_THAT(faults(primary), Contains(HasSubstr("requires primary credential to map to env var AWS_ACCESS_KEY_ID")));
}

TEST(ProfileLint, KnowsWhereTokenEndpointsMayStand) {  // TG-01, TG-22
  const auto grant = [](const std::string& url) {
    ProviderProfile profile = github();
    profile.mutable_credentials(0)->mutable_token_grant()->set_token_endpoint(url);
    return faults(profile);
  };
  for (const char* url : {"https://idp.example.com/t", "http://[::1]:8/t", "http://127.0.0.1/t", "http://localhost:1/t", "http://a.b.svc/t",
                          "http://a.b.svc.cluster.local/t", "http://[::ffff:127.0.0.1]/t"})
    EXPECT_THAT(grant(url), IsEmpty()) << url;
  for (const char* url :
       {"http://idp.example.com", "http://a.b.svc.evil.com", "http://keycloak/t", "http://user@evil.com/", "ftp://x", "idp", "https://"})
    EXPECT_FALSE(grant(url).empty()) << url;
}

TEST(ProfileLint, ChecksStablePlaceholdersAndFiles) {
  auto profile = github();
  profile.mutable_credentials(0)->set_stable_placeholder(true);
  EXPECT_THAT(faults(profile), IsEmpty());
  profile.mutable_credentials(0)->clear_env_vars();
  EXPECT_THAT(faults(profile), Contains(HasSubstr("stable_placeholder requires env_vars")));
  profile = github();
  for (const char* path : {"/x", "../x", "a//b", "", "a b"}) {
    profile.clear_files();
    profile.add_files()->set_path(path);
    EXPECT_THAT(faults(profile), Contains(HasSubstr("provider file path is invalid"))) << path;
  }
  profile.clear_files();
  profile.add_files()->set_path("a");
  profile.mutable_files(0)->set_content(std::string(kMaxProfileFileBytes, 'x'));
  EXPECT_THAT(faults(profile), IsEmpty());
  profile.mutable_files(0)->set_content(std::string(kMaxProfileFileBytes + 1, 'x'));
  EXPECT_THAT(faults(profile), Contains(HasSubstr("exceeds the size limit")));
  profile.clear_files();
  for (std::size_t i = 0; i <= kMaxProfileFiles; ++i) profile.add_files()->set_path("f" + std::to_string(i));
  EXPECT_THAT(faults(profile), Contains(HasSubstr("more than 64 files")));
}

TEST(Profile, SaysWhichKeysAProviderHas) {
  const auto profile = github();
  EXPECT_THAT(accepted_keys(profile), ElementsAre("GH_TOKEN", "GITHUB_TOKEN"));
  EXPECT_THAT(missing_required(profile, {"GH_TOKEN"}), IsEmpty());
  EXPECT_THAT(missing_required(profile, {}), ElementsAre("GITHUB_TOKEN"));
  EXPECT_FALSE(allows_empty(profile));
}

TEST(Profile, BecomesARuleOfItsOwn) {
  const auto rule = layer(with(github()));
  ASSERT_TRUE(rule);
  EXPECT_EQ(rule->name(), "_provider_work_github");
  EXPECT_EQ(rule->endpoints_size(), 2);
  EXPECT_EQ(rule->binaries_size(), 2);
  EXPECT_EQ(layer_name("..."), "_provider_unnamed");
  EXPECT_EQ(profile_endpoints(with(github())).size(), 3U) << "one an endpoint and port";
}

TEST(Profile, IsEndpointlessForAProviderThatPointsElsewhere) {
  EXPECT_FALSE(layer(with(github(), {{"GITHUB_BASE_URL", "https://git.corp.example/api"}})));
  EXPECT_THAT(profile_endpoints(with(github(), {{"github_base_url", "https://git.corp.example"}})), IsEmpty());
  EXPECT_TRUE(layer(with(github(), {{"GITHUB_BASE_URL", "https://API.github.com:443/v3"}})));
  EXPECT_TRUE(layer(with(github(), {{"GITHUB_BASE_URL", "https://raw.githubusercontent.com"}})));
  EXPECT_TRUE(layer(with(github(), {{"GITHUB_BASE_URL", "not a url"}})));
}

TEST(StableHandle, HasTheVectorsThatOthersComputeToo) {  // CR-55
  EXPECT_EQ(stable_handle("sb-1", "p-1", "TOK", "e-1", {{"API.Example.com.", 443, "**"}}),
            "d9dfe8ae67324f8d0a8eae037a8bff6d12e2c60dfa8809e154a8dce8f2698e51");
  EXPECT_EQ(stable_handle("sb-1", "p-1", "TOK", "e-1", {{"api.example.com", 443, ""}, {"api.example.com", 443, "/**"}}),
            "d9dfe8ae67324f8d0a8eae037a8bff6d12e2c60dfa8809e154a8dce8f2698e51");
  EXPECT_EQ(stable_handle("sb-1", "p-1", "TOK", "e-1", {{"api.example.com", 8443, ""}, {"api.example.com", 443, "/v1/**"}}),
            "043fab64eb66ba80ee553ae5a06e1d81d00221bce4378dd608662deb4f7ac1b9");
}

TEST(StableHandle, CR_51_FollowsEachOfItsInputs) {  // CR-52, CR-53, CR-54
  const std::vector<BindingEndpoint> place{{"h", 443, ""}};
  const std::set<std::string> all{stable_handle("s", "p", "k", "e", place),
                                  stable_handle("s2", "p", "k", "e", place),
                                  stable_handle("s", "p2", "k", "e", place),
                                  stable_handle("s", "p", "k2", "e", place),
                                  stable_handle("s", "p", "k", "e2", place),
                                  stable_handle("s", "p", "k", "e", {{"h", 444, ""}}),
                                  stable_handle("s", "p", "k", "e", {{"h", 443, "/v1"}})};
  EXPECT_EQ(all.size(), 7U);
}

}  // namespace
}  // namespace openshell::providers
