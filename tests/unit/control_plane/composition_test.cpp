// The policy that is enforced: a sandbox's own rules, and those that the profiles of attached providers add.
#include <gmock/gmock.h>

#include <functional>

#include "actors/gateway/effective_config.hpp"
#include "openshell.pb.h"
#include "policy/hash.hpp"
#include "policy/normalize.hpp"
#include "providers/profile.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

using openshell::sandbox::v1::NetworkEndpoint;
using openshell::sandbox::v1::SandboxPolicy;
using providers::Provider;
using testing::HasSubstr;

NetworkEndpoint endpoint(const std::string& host, std::uint32_t port = 443, const std::string& protocol = "rest") {
  NetworkEndpoint out;
  out.set_host(host);
  out.add_ports(port);
  out.set_protocol(protocol);
  if (protocol == "rest") {
    out.set_access(openshell::sandbox::v1::NETWORK_ACCESS_PRESET_READ_WRITE);
    out.set_enforcement(openshell::sandbox::v1::NETWORK_ENFORCEMENT_MODE_ENFORCE);
  }
  return out;
}

Provider crm(const std::string& name = "crm", const std::string& host = "crm.example.com") {
  providers::Profile profile;
  profile.row_id = "row-" + host;
  profile.content.set_id("my-crm");
  auto& credential = *profile.content.add_credentials();
  credential.set_name("token");
  credential.add_env_vars("CRM_TOKEN");
  if (!host.empty()) *profile.content.add_endpoints() = endpoint(host);
  profile.content.add_binaries()->set_path("/usr/bin/curl");
  Provider out;
  out.id = "id-" + name;
  out.name = name;
  out.type = "my-crm";
  out.credentials["CRM_TOKEN"].handle.handle = "v1:x";
  out.profile = std::make_shared<const providers::Profile>(std::move(profile));
  return out;
}

SandboxPolicy own(const NetworkEndpoint& one, const std::string& rule = "api") {
  SandboxPolicy policy;
  policy.set_version(1);
  auto& made = (*policy.mutable_network_policies())[rule];
  made.set_name(rule);
  *made.add_endpoints() = one;
  made.add_binaries()->set_path("/usr/bin/curl");
  policy::normalize(policy, policy::Provenance::clear);
  return policy;
}

TEST(Composition, AddsARuleForEachProviderAndReplacesNone) {  // GW-05
  const auto composed = compose_policy(own(endpoint("api.example.com")), {crm(), crm("CRM!", "other.example.com")}, false);
  EXPECT_EQ(composed.network_policies_size(), 3);
  EXPECT_EQ(composed.network_policies().at("_provider_crm").endpoints(0).host(), "crm.example.com");
  EXPECT_EQ(composed.network_policies().at("_provider_crm_2").endpoints(0).host(), "other.example.com");
  EXPECT_EQ(composed.network_policies().at("_provider_crm_2").name(), "_provider_crm_2");
  EXPECT_FALSE(composed.network_policies().at("api").endpoints(0).provider_credentialed());
  EXPECT_TRUE(composed.network_policies().at("_provider_crm").endpoints(0).provider_credentialed());
}

TEST(Composition, OfAGlobalPolicyAddsNothingButMarks) {
  const auto composed = compose_policy(own(endpoint("*.example.com")), {crm()}, true);
  EXPECT_EQ(composed.network_policies_size(), 1);
  EXPECT_TRUE(composed.network_policies().at("api").endpoints(0).provider_credentialed()) << "the pattern covers the provider's host";
}

TEST(Composition, MarksEveryEndpointThatReachesACredential) {
  const auto marked = [](const NetworkEndpoint& one) {
    return compose_policy(own(one), {crm()}, false).network_policies().at("api").endpoints(0).provider_credentialed();
  };
  EXPECT_TRUE(marked(endpoint("CRM.example.com")));
  EXPECT_TRUE(marked(endpoint("*.example.com")));
  EXPECT_FALSE(marked(endpoint("crm.example.com", 8443))) << "another port";
  EXPECT_FALSE(marked(endpoint("crm.example.org")));
}

TEST(Composition, IsCanonicalSoThatEqualPoliciesHashEqually) {
  auto listed = crm();
  auto profile = *listed.profile;
  profile.content.mutable_endpoints(0)->clear_ports();
  profile.content.mutable_endpoints(0)->set_port(443);
  listed.profile = std::make_shared<const providers::Profile>(profile);
  const auto base = own(endpoint("api.example.com"));
  EXPECT_EQ(policy::policy_hash(compose_policy(base, {crm()}, false)).str(),
            policy::policy_hash(compose_policy(base, {listed}, false)).str());
}

TEST(Composition, RefusesCredentialsWhereNobodyLooks) {
  EXPECT_THAT(check_uninspected(own(endpoint("crm.example.com", 443, "")), {crm()}).ToString(),
              HasSubstr("credentialed endpoint 'crm.example.com:443' in rule 'api' uses L4-only"));
  EXPECT_TRUE(check_uninspected(own(endpoint("crm.example.com", 443, "")), {}).ok());
  EXPECT_TRUE(check_uninspected(own(endpoint("crm.example.com")), {crm()}).ok());
}

TEST(Composition, RefusesRulesThatDisagree) {  // CA-04
  auto other = endpoint("crm.example.com");
  other.set_access(openshell::sandbox::v1::NETWORK_ACCESS_PRESET_UNSPECIFIED);
  other.set_protocol("websocket");
  other.set_access(openshell::sandbox::v1::NETWORK_ACCESS_PRESET_READ_WRITE);
  EXPECT_TRUE(absl::IsFailedPrecondition(check_composition(own(other), {crm()}))) << check_composition(own(other), {crm()});
  EXPECT_TRUE(check_composition(own(endpoint("crm.example.com")), {crm()}).ok());
}

TEST(Composition, B02_ABroadRuleAndAProviderRuleLoadTogetherOrSayWhatWouldHelp) {  // CA-93
  auto broad = endpoint("**.pay.test", 443, "");
  broad.set_tls(openshell::sandbox::v1::NETWORK_TLS_MODE_SKIP);
  const auto pay = crm("pay", "api.pay.test");
  // Either order ends here: the policy is judged with the providers that are attached, an attachment with the policy that is stored.
  const auto refused = check_uninspected(own(broad, "broad"), {pay});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string{refused.message()},
            "credentialed endpoint '**.pay.test:443' in rule 'broad' uses L4-only; configure L7 inspection or explicitly set "
            "allow_uninspected_credentials: true (it covers 'api.pay.test:443' of rule '_provider_pay')");
  broad.set_allow_uninspected_credentials(true);
  EXPECT_TRUE(check_uninspected(own(broad, "broad"), {pay}).ok());
  EXPECT_TRUE(check_composition(own(broad, "broad"), {pay}).ok()) << "the more specific endpoint decides for its host";
  EXPECT_TRUE(check_bindings(own(broad, "broad"), {pay}, false).ok());
}

TEST(Composition, BindsCredentialsOfEndpointlessProfilesOnly) {
  auto bound = endpoint("api.example.com");
  bound.mutable_credential_binding()->set_provider("crm");
  EXPECT_THAT(
      check_bindings(own(bound), {crm()}, false).ToString(),
      HasSubstr("credential_binding provider 'crm' profile already defines endpoints; profile endpoints remain the credential boundary"));
  EXPECT_TRUE(check_bindings(own(bound), {crm("crm", "")}, false).ok());
  auto elsewhere = crm();
  elsewhere.config["CRM_BASE_URL"] = "https://crm.corp.example";
  EXPECT_TRUE(check_bindings(own(bound), {elsewhere}, false).ok()) << "its profile's endpoints do not count for this provider";
  auto gone = crm();
  gone.profile = nullptr;
  EXPECT_THAT(check_bindings(own(bound), {gone}, false).ToString(), HasSubstr("credential_binding provider 'crm' has no provider profile"));
  Provider generic = gone;
  generic.type = "generic";
  EXPECT_TRUE(check_bindings(own(bound), {generic}, false).ok());
}

// Of the words themselves, whoever is attached.
TEST(Composition, BindingsThatSayTooLittleAreRefusedInWords) {
  const auto fault = [](const std::function<void(NetworkEndpoint&)>& change, bool global = false) {
    auto bound = endpoint("api.example.com");
    bound.mutable_credential_binding()->set_provider("crm");
    change(bound);
    SandboxPolicy policy;  // as a row may hold it: not through the checks of today
    *(*policy.mutable_network_policies())["api"].add_endpoints() = bound;
    return check_bindings(policy, {crm("crm", "")}, global).ToString();
  };
  EXPECT_EQ(fault([](auto&) {}), "OK");
  EXPECT_EQ(fault([](auto& e) { e.mutable_credential_binding()->set_provider(""); }),
            "INVALID_ARGUMENT: credential_binding.provider is required for endpoint 'api.example.com'");
  EXPECT_EQ(fault([](auto& e) { e.mutable_credential_binding()->set_provider(" crm"); }),
            "INVALID_ARGUMENT: credential_binding.provider ' crm' must not contain leading or trailing whitespace");
  EXPECT_EQ(fault([](auto& e) { e.clear_host(); }), "INVALID_ARGUMENT: credential-bound endpoint for provider 'crm' must define a host");
  const std::string ports =
      "INVALID_ARGUMENT: credential-bound endpoint 'api.example.com' for provider 'crm' must define ports in range 1..=65535";
  EXPECT_EQ(fault([](auto& e) { e.clear_ports(); }), ports);
  EXPECT_EQ(fault([](auto& e) { e.add_ports(65'536); }), ports);
  EXPECT_EQ(fault([](auto& e) { e.add_ports(65'535); }), "OK");
  EXPECT_EQ(fault([](auto& e) { e.mutable_credential_binding()->set_provider("other"); }),
            "FAILED_PRECONDITION: credential_binding references provider 'other', but that provider is not attached to the sandbox");
  EXPECT_EQ(fault([](auto&) {}, true), "FAILED_PRECONDITION: credential_binding is sandbox-scoped and cannot be used in a global policy");
}

Provider aws(const std::string& host, const std::string& path = "") {
  auto out = crm("cloud", host);
  auto profile = *out.profile;
  profile.content.clear_credentials();
  for (const auto* key : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) profile.content.add_credentials()->add_env_vars(key);
  if (!host.empty()) profile.content.mutable_endpoints(0)->set_path(path);
  out.profile = std::make_shared<const providers::Profile>(profile);
  return out;
}

TEST(Composition, SigningNeedsSomebodyWhoHasTheKeysForEveryPort) {
  const auto fault = [](
                         const std::vector<Provider>& attached, const std::function<void(NetworkEndpoint&)>& change = [](auto&) {}) {
    auto one = endpoint("s3.cloud.test");
    one.set_credential_signing("sigv4");
    one.set_signing_service("s3");
    change(one);
    return std::string{check_bindings(own(one), attached, false).message()};
  };
  const std::string none = "credential_signing endpoint 's3.cloud.test:443' has no resolvable AWS credential source; attach";
  EXPECT_THAT(fault({}), testing::StartsWith(none));
  EXPECT_THAT(fault({crm("cloud", "s3.cloud.test")}), testing::StartsWith(none)) << "it has other keys";
  EXPECT_EQ(fault({aws("S3.cloud.test")}), "");
  EXPECT_EQ(fault({aws("*.cloud.test")}), "");
  EXPECT_THAT(fault({aws("s3.other.test")}), testing::StartsWith(none));
  EXPECT_THAT(fault({aws("s3.cloud.test")}, [](auto& e) { e.add_ports(8443); }), HasSubstr("s3.cloud.test:443,8443'")) << "one port of two";
  EXPECT_EQ(fault({aws("*.cloud.test")}, [](auto& e) { e.set_host("*.cloud.test"); }), "");
  EXPECT_THAT(fault({aws("**.cloud.test")}, [](auto& e) { e.set_host("*.cloud.test"); }), HasSubstr("no resolvable"))
      << "patterns: by text";
  EXPECT_EQ(fault({aws("s3.cloud.test", "/b/**")}, [](auto& e) { e.set_path("/b/x"); }), "");
  EXPECT_THAT(fault({aws("s3.cloud.test", "/b/**")}), HasSubstr("no resolvable")) << "the whole host is more than the profile's path";
  EXPECT_THAT(fault({aws("s3.cloud.test", "/b/**")}, [](auto& e) { e.set_path("/b/*"); }), HasSubstr("s3.cloud.test:443/b/*'"));
  const auto bind = [](auto& e) { e.mutable_credential_binding()->set_provider("cloud"); };
  EXPECT_EQ(fault({aws("")}, bind), "");
  EXPECT_THAT(fault({crm("cloud", "")}, bind), testing::StartsWith(none));
}

// A scope is compared as names are: without case, blanks or a final dot.
TEST(Composition, AProtocolOfBlanksIsNone) {
  auto blank = endpoint("crm.example.com", 443, " tcp ");
  SandboxPolicy policy;
  *(*policy.mutable_network_policies())["api"].add_endpoints() = blank;
  EXPECT_THAT(check_uninspected(policy, {crm()}).ToString(), HasSubstr("uses L4-only"));
  blank.set_host("CRM.example.com.");
  *(*policy.mutable_network_policies())["api"].mutable_endpoints(0) = blank;
  EXPECT_THAT(check_uninspected(policy, {crm()}).ToString(), HasSubstr("uses L4-only"));
}

TEST(Composition, AnUnusableNameOfAProviderIsUnnamed) {
  EXPECT_EQ(providers::layer_name("Work GitHub!"), "_provider_work_github");
  EXPECT_EQ(providers::layer_name("..."), "_provider_unnamed");
}

}  // namespace
}  // namespace openshell::gateway
