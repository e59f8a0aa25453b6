// Bearer tokens of an OpenID Connect issuer: GW-02 and its neighbours. The fetching itself is tried against a real issuer in tests/e2e.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/oidc/claims.hpp"
#include "api/oidc/discovery.hpp"
#include "api/oidc/https.hpp"
#include "api/oidc/key_schedule.hpp"
#include "api/oidc/key_set.hpp"
#include "api/oidc/token.hpp"
#include "tests/unit/api/oidc_keys.hpp"

namespace openshell::oidc {
namespace {

using boost::json::object;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kNow = 1'700'000'000;
const ClaimRules kRules{"https://id.test", "openshell-cli"};

object claims() { return {{"iss", "https://id.test"}, {"aud", "openshell-cli"}, {"sub", "u1"}, {"exp", kNow + 300}}; }

absl::Status verify(const KeySet& keys, const std::string& compact) {
  auto token = take_apart(compact);
  return token.ok() ? keys.verify(*token) : token.status();
}

std::string refusal(object all) {
  auto who = identity_of(all, kRules, kNow);
  return who.ok() ? "" : std::string{who.status().message()};
}

TEST(OidcToken, EveryAlgorithmVerifiesItsOwnSignatureAndNoOther) {
  for (const std::string algorithm : {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"}) {
    const IssuerKey key{algorithm}, other{algorithm};
    const auto keys = *KeySet::parse(key_set({key.jwk("k")}));
    EXPECT_EQ(verify(keys, key.token("k", claims())), absl::OkStatus()) << algorithm;
    EXPECT_EQ(verify(keys, other.token("k", claims())).message(), "invalid token: InvalidSignature") << algorithm;
    EXPECT_EQ(verify(keys, key.token("l", claims())).message(), "invalid token: unknown signing key") << algorithm;
    auto token = *take_apart(key.token("k", claims()));
    token.signed_text.back() ^= 1;
    EXPECT_FALSE(keys.verify(token).ok()) << "a changed payload";
    token.signature.pop_back();
    EXPECT_FALSE(keys.verify(token).ok()) << "a short signature";
    token.signature.clear();
    EXPECT_FALSE(keys.verify(token).ok()) << "no signature";
  }
}

TEST(OidcToken, TheAlgorithmIsTheKeysNotTheTokens) {
  const IssuerKey key{"RS256"};
  const auto keys = *KeySet::parse(key_set({key.jwk("k")}));
  for (const char* claimed : {"none", "HS256", "RS512", "PS256", "EdDSA", "", "rs256"})
    EXPECT_EQ(verify(keys, key.token({{"alg", claimed}, {"kid", "k"}}, claims())).message(), "invalid token: InvalidAlgorithm") << claimed;
  EXPECT_EQ(verify(keys, key.token({{"alg", "RS256"}}, claims())).message(), "invalid token: missing kid");
  EXPECT_THAT(std::string{verify(keys, key.token({{"alg", "RS256"}, {"kid", "k"}, {"crit", "b64"}}, claims())).message()},
              HasSubstr("critical"));
}

TEST(OidcToken, WhatIsNoTokenIsRefusedWithoutQuotingIt) {
  const std::string good = IssuerKey{"EdDSA"}.token("k", claims());
  for (const std::string& text :
       std::vector<std::string>{"", ".", "..", "not.a.jwt", "a.b", good + ".", good + "=", "." + good, " " + good, good.substr(1),
                                std::string(kMaxBearerBytes, 'a'), good.substr(0, good.rfind('.'))}) {
    const auto token = take_apart(text);
    EXPECT_EQ(token.status().code(), absl::StatusCode::kUnauthenticated) << text;
    EXPECT_EQ(token.status().message(), "invalid token") << text;
  }
  EXPECT_TRUE(take_apart(good).ok());
  EXPECT_EQ(unverified_claims(good).at("sub").as_string(), "u1");
  EXPECT_THAT(unverified_claims("x.y"), IsEmpty());
}

TEST(OidcToken, ATokenAtTheLimitIsReadAndOneByteMoreIsNot) {
  const IssuerKey key{"EdDSA"};
  object all = claims();
  all["pad"] = std::string(kMaxBearerBytes, 'x');
  while (key.token("k", all).size() > kMaxBearerBytes) all["pad"].as_string().pop_back();
  EXPECT_TRUE(take_apart(key.token("k", all)).ok());
  all["pad"].as_string().append("xx");
  EXPECT_FALSE(take_apart(key.token("k", all)).ok());
}

TEST(OidcKeySet, LeavesOutWhatIsNotForVerifyingSignatures) {
  const IssuerKey rsa{"RS256"}, small{"RS256", 1024}, ec{"ES256"};
  const auto with = [&](object jwk, const char* name, boost::json::value value) {
    jwk[name] = std::move(value);
    return jwk;
  };
  const auto without = [&](object jwk, const char* name) {
    jwk.erase(name);
    return jwk;
  };
  const std::vector<object> bad{with(rsa.jwk("k"), "use", "enc"),
                                with(rsa.jwk("k"), "key_ops", boost::json::array{"sign"}),
                                with(rsa.jwk("k"), "alg", "ES256"),
                                with(rsa.jwk("k"), "alg", "HS256"),
                                with(rsa.jwk("k"), "alg", 7),
                                with(rsa.jwk("k"), "e", "AQ"),
                                with(rsa.jwk("k"), "e", "Ag"),
                                without(rsa.jwk("k"), "n"),
                                without(rsa.jwk("k"), "kid"),
                                with(ec.jwk("k"), "crv", "P-521"),
                                with(ec.jwk("k"), "alg", "ES384"),
                                with(ec.jwk("k"), "x", ec.jwk("k").at("y")),
                                small.jwk("k"),
                                object{{"kty", "oct"}, {"kid", "k"}, {"k", "c2VjcmV0"}}};
  for (const auto& jwk : bad) {
    std::vector<std::string> left_out;
    const auto keys = KeySet::parse(key_set({jwk}), &left_out);
    ASSERT_TRUE(keys.ok());
    EXPECT_TRUE(keys->empty()) << boost::json::serialize(jwk);
    EXPECT_EQ(left_out.size(), 1U);
  }
  const auto fine =
      *KeySet::parse(key_set({with(without(rsa.jwk("a"), "alg"), "key_ops", boost::json::array{"verify"}), ec.jwk("b"), ec.jwk("a")}));
  EXPECT_EQ(fine.size(), 2U) << "an RSA key without algorithm is RS256, the second `a` is left out";
  EXPECT_EQ(verify(fine, rsa.token("a", claims())), absl::OkStatus());
}

TEST(OidcKeySet, NoKeySetIsAnErrorAndTooManyKeysAreCutOff) {
  for (const char* text : {"", "[]", "{}", R"({"keys":{}})", "{\"keys\":["}) EXPECT_FALSE(KeySet::parse(text).ok()) << text;
  EXPECT_TRUE(KeySet::parse(R"({"keys":[]})")->empty());
  EXPECT_TRUE(KeySet::parse(R"({"keys":[7,null,"x"]})")->empty());
  const IssuerKey key{"EdDSA"};
  std::vector<object> many;
  for (std::size_t i = 0; i <= kMaxKeys; ++i) many.push_back(key.jwk("k" + std::to_string(i)));
  EXPECT_EQ(KeySet::parse(key_set(many))->size(), kMaxKeys);
}

TEST(OidcClaims, EachMandatoryClaimIsMissed) {
  EXPECT_EQ(refusal(claims()), "");
  for (const char* name : {"iss", "aud", "exp", "sub"}) {
    object without = claims();
    without.erase(name);
    EXPECT_EQ(refusal(without), std::string{"invalid token: Missing required claim: "} + name);
  }
}

TEST(OidcClaims, TimesAreForgivenSixtySecondsAndNoMore) {
  const auto with = [](const char* name, boost::json::value value) {
    object all = claims();
    all[name] = std::move(value);
    return all;
  };
  EXPECT_EQ(refusal(with("exp", kNow - kClockLeewaySeconds)), "");
  EXPECT_EQ(refusal(with("exp", kNow - kClockLeewaySeconds - 1)), "invalid token: ExpiredSignature");
  EXPECT_EQ(refusal(with("exp", 1.7e9 + 10.5)), "");
  for (const boost::json::value& odd :
       {boost::json::value("soon"), boost::json::value(1e300), boost::json::value(nullptr), boost::json::value(UINT64_MAX)})
    EXPECT_EQ(refusal(with("exp", odd)), "invalid token: exp is not a time");
  EXPECT_EQ(refusal(with("nbf", kNow + kClockLeewaySeconds)), "");
  EXPECT_EQ(refusal(with("nbf", kNow + kClockLeewaySeconds + 1)), "invalid token: ImmatureSignature");
  EXPECT_EQ(refusal(with("nbf", "now")), "invalid token: nbf is not a time");
}

TEST(OidcClaims, IssuerAndAudienceAreComparedByteForByte) {
  const auto with = [](const char* name, boost::json::value value) {
    object all = claims();
    all[name] = std::move(value);
    return refusal(all);
  };
  EXPECT_EQ(with("iss", "https://id.test/"), "invalid token: InvalidIssuer") << "a slash at the end counts here";
  EXPECT_EQ(with("iss", boost::json::array{"https://id.test"}), "invalid token: InvalidIssuer");
  EXPECT_EQ(with("aud", boost::json::array{"other", "openshell-cli"}), "");
  EXPECT_EQ(with("aud", boost::json::array{"other"}), "invalid token: InvalidAudience");
  EXPECT_EQ(with("aud", "openshell-cli "), "invalid token: InvalidAudience");
  EXPECT_EQ(with("aud", object{}), "invalid token: InvalidAudience");
  EXPECT_THAT(with("sub", ""), HasSubstr("sub"));
  EXPECT_THAT(with("sub", 7), HasSubstr("sub"));
}

TEST(OidcClaims, RolesAndScopesAreReadWhereTheyAreSaidToBe) {
  object all = claims();
  all["preferred_username"] = "pat";
  all["realm_access"] = object{{"roles", boost::json::array{"a", 7, "b"}}};
  all["groups"] = "admins";
  all["scope"] = "openid sandbox:read  offline_access";
  auto who = *identity_of(all, kRules, kNow);
  EXPECT_EQ(who.display_name, "pat");
  EXPECT_EQ(who.source, api::Identity::Source::kOidc);
  EXPECT_THAT(who.roles, ElementsAre("a", "b"));
  EXPECT_THAT(who.scopes, IsEmpty()) << "scopes are off";
  ClaimRules rules = kRules;
  rules.roles_claim = "groups";
  rules.scopes_claim = "scope";
  who = *identity_of(all, rules, kNow);
  EXPECT_THAT(who.roles, IsEmpty()) << "text is no list of roles";
  EXPECT_THAT(who.scopes, ElementsAre("sandbox:read"));
  rules.roles_claim = "realm_access.roles.x";
  rules.scopes_claim = "realm_access.roles";
  who = *identity_of(all, rules, kNow);
  EXPECT_THAT(who.roles, IsEmpty());
  EXPECT_THAT(who.scopes, ElementsAre("a", "b"));
}

TEST(OidcKeySchedule, KeysCountThriceTheirLifetimeWhereTheIssuerIsInTrouble) {
  using std::chrono::seconds;
  KeySchedule schedule{seconds{100}};
  const Clock::time_point start{seconds{1000}};
  EXPECT_FALSE(schedule.usable(start));
  EXPECT_TRUE(schedule.may_fetch(start));
  schedule.started(start);
  EXPECT_FALSE(schedule.may_fetch(start + seconds{50})) << "one at a time";
  schedule.succeeded(start);
  EXPECT_FALSE(schedule.stale(start + seconds{100}));
  EXPECT_TRUE(schedule.stale(start + seconds{101}));
  schedule.started(start + seconds{101});
  schedule.failed();
  EXPECT_TRUE(schedule.troubled());
  EXPECT_FALSE(schedule.may_fetch(start + seconds{101})) << "at most one a second";
  EXPECT_TRUE(schedule.may_fetch(start + seconds{102}));
  EXPECT_TRUE(schedule.usable(start + seconds{300}));
  EXPECT_FALSE(schedule.usable(start + seconds{301})) << "fail closed";
  schedule.started(start + seconds{400});
  schedule.succeeded(start + seconds{400});
  EXPECT_TRUE(schedule.usable(start + seconds{401}));
  EXPECT_FALSE(schedule.troubled());
}

TEST(OidcDiscovery, ASlashAtTheEndMakesNoDifferenceAnotherIssuerDoes) {
  const auto read = [](const std::string& issuer) {
    return read_discovery("https://id.test",
                          R"({"issuer":")" + issuer + R"(","jwks_uri":"https://id.test/keys","token_endpoint":"https://id.test/t"})");
  };
  EXPECT_EQ(read("https://id.test/")->key_set_url, "https://id.test/keys");
  EXPECT_EQ(read("https://id.test")->token_endpoint, "https://id.test/t");
  EXPECT_EQ(read("https://evil.test").status().message(),
            "OIDC discovery issuer mismatch: expected 'https://id.test', got 'https://evil.test'");
  for (const char* text : {"", "[]", "{}", R"({"issuer":7})"}) EXPECT_FALSE(read_discovery("https://id.test", text).ok()) << text;
}

TEST(OidcHttps, PlainHttpIsForNumericLoopbackAndOnlyWhereItIsAllowed) {
  for (const char* url : {"https://id.test", "https://id.test:8443/realm?x=1", "https://127.0.0.1"})
    EXPECT_TRUE(check_url(url, false).ok()) << url;
  for (const char* url : {"http://127.0.0.1:80", "http://127.9.9.9", "http://[::1]:8080"}) {
    EXPECT_TRUE(check_url(url, true).ok()) << url;
    EXPECT_FALSE(check_url(url, false).ok()) << url;
  }
  for (const char* url : {"http://localhost", "http://id.test", "http://10.0.0.1", "http://[::2]", "ftp://id.test", "id.test", "",
                          "https://", "https://u:p@id.test", "https://id.test#x", "http://127.0.0.1.evil.test", "https:/id.test"})
    EXPECT_FALSE(check_url(url, true).ok()) << url;
  EXPECT_EQ(origin_of("https://ID.test/a"), "https://id.test:443");
  EXPECT_EQ(origin_of("http://127.0.0.1/a"), "http://127.0.0.1:80");
  EXPECT_EQ(origin_of("https://id.test:443"), origin_of("https://id.test/keys"));
  EXPECT_EQ(origin_of("nonsense"), "");
}

}  // namespace
}  // namespace openshell::oidc
