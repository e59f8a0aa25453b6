// The policy that is enforced: a sandbox's own rules, and those that the profiles of attached providers add.
#include <gmock/gmock.h>

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

}  // namespace
}  // namespace openshell::gateway
