#include "api/tokens.hpp"

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/store.hpp"
#include "tests/unit/api/key_files.hpp"

namespace openshell::api {
namespace {

using testing::HasSubstr;
constexpr std::int64_t kNow = 1'800'000'000;

TokenClaims claims() {
  return {SandboxId{"0f1e2d3c-0000-4000-8000-000000000001"}, GenerationId{"g-1"}, 3, storage::new_uuid(), kNow, kNow + 600};
}

class Tokens : public testing::Test {
 protected:
  std::string refused(const std::string& token, std::int64_t now = kNow) const {
    return std::string{authority_->verify(TokenKind::kGateway, token, now).status().message()};
  }
  std::string signed_with(TokenClaims changed) const { return std::string{authority_->sign(TokenKind::kGateway, changed).reveal()}; }
  KeyFiles files_;
  std::unique_ptr<TokenAuthority> authority_ = *TokenAuthority::load(files_.config());
};

TEST_F(Tokens, SayWhatWasSigned) {
  const TokenClaims wanted = claims();
  for (const auto kind : {TokenKind::kGateway, TokenKind::kBoundary}) {
    const auto token = authority_->sign(kind, wanted);
    const auto read = authority_->verify(kind, token.reveal(), kNow);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->sandbox, wanted.sandbox);
    EXPECT_EQ(read->generation, wanted.generation);
    EXPECT_EQ(read->auth_epoch, 3U);
    EXPECT_EQ(read->token_id, wanted.token_id);
    EXPECT_EQ(read->expires_at, wanted.expires_at);
  }
}

TEST_F(Tokens, HaveOneHeaderAndTenClaims) {
  const std::string token = signed_with(claims());
  std::string header;
  std::string body;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(token.substr(0, token.find('.')), &header));
  ASSERT_TRUE(absl::WebSafeBase64Unescape(token.substr(token.find('.') + 1, token.rfind('.') - token.find('.') - 1), &body));
  EXPECT_THAT(header, HasSubstr(R"("typ":"openshell-gateway-session+jwt","alg":"EdDSA","kid":")"));
  EXPECT_THAT(
      body,
      HasSubstr(
          R"("iss":"openshell-gateway:openshell","sub":"spiffe://openshell/sandbox/0f1e2d3c-0000-4000-8000-000000000001","aud":"openshell-gateway:openshell")"));
  EXPECT_THAT(body, HasSubstr(R"("component":"openshell-supervisor")"));
}

TEST_F(Tokens, OneKindIsNotTheOther) {
  const auto boundary = authority_->sign(TokenKind::kBoundary, claims());
  EXPECT_EQ(refused(std::string{boundary.reveal()}), "invalid gateway session: session token type is invalid");
}

TEST_F(Tokens, TimesWithThirtySecondsOfLeeway) {
  const std::string token = signed_with(claims());
  EXPECT_EQ(refused(token, kNow + 630), "");
  EXPECT_EQ(refused(token, kNow + 631), "invalid gateway session: session token has expired");
  EXPECT_EQ(refused(token, kNow - 30), "");
  EXPECT_EQ(refused(token, kNow - 31), "invalid gateway session: session token was issued in the future");
  TokenClaims forever = claims();
  forever.expires_at = 0;
  EXPECT_EQ(refused(signed_with(forever), kNow + 1'000'000'000), "");
  TokenClaims negative = claims();
  negative.expires_at = -1;
  EXPECT_EQ(refused(signed_with(negative)), "invalid gateway session: session token has expired");
  TokenClaims longer = claims();
  longer.expires_at = kNow + 3601;
  EXPECT_EQ(refused(signed_with(longer)), "invalid gateway session: session token lifetime must be between 60 and 3600 seconds");
}

TEST_F(Tokens, ClaimsThatDoNotFitAreRefused) {
  TokenClaims bad = claims();
  bad.token_id = "not-a-uuid";
  EXPECT_EQ(refused(signed_with(bad)), "invalid gateway session: session token ID is not a UUID");
  bad = claims();
  bad.sandbox = SandboxId{"a b"};
  EXPECT_EQ(refused(signed_with(bad)), "invalid gateway session: session token is invalid");
  bad = claims();
  bad.auth_epoch = 0;
  EXPECT_EQ(refused(signed_with(bad)), "invalid gateway session: session token is invalid");
}

TEST_F(Tokens, AChangedByteAnywhereIsRefused) {
  const std::string token = signed_with(claims());
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(authority_->verify(TokenKind::kGateway, changed, kNow).ok()) << i;
  }
}

TEST_F(Tokens, ForeignKeysAndForeignTextAreNotOurs) {
  const KeyFiles other;
  const auto foreign = (*TokenAuthority::load(other.config()))->sign(TokenKind::kGateway, claims());
  EXPECT_EQ(refused(std::string{foreign.reveal()}), "invalid gateway session: session token key ID is unknown");
  for (const char* text : {"", "a.b.c", "abc", "....", "eyJ0eXAiOiJKV1QifQ.e30."}) {
    EXPECT_TRUE(absl::IsNotFound(authority_->verify(TokenKind::kGateway, text, kNow).status())) << text;
  }
  EXPECT_FALSE(authority_->verify(TokenKind::kGateway, std::string(kMaxTokenBytes + 1, 'a'), kNow).ok());
}

TEST_F(Tokens, ALaunchHasTwoTokensOfOneGeneration) {
  const auto launch = authority_->launch(SandboxId{"s"}, GenerationId{"g"}, 2, storage::new_uuid(), kNow);
  EXPECT_TRUE(authority_->verify(TokenKind::kGateway, launch.gateway_token.reveal(), kNow).ok());
  EXPECT_TRUE(authority_->verify(TokenKind::kBoundary, launch.boundary_token.reveal(), kNow).ok());
  EXPECT_EQ(launch.gateway_expires_at, kNow + 600);
  EXPECT_EQ(launch.session_id, "g");
  const std::string json{launch.to_json().reveal()};
  EXPECT_THAT(json, HasSubstr(R"("gateway_id":"openshell")"));
  EXPECT_THAT(json, HasSubstr(R"("session_rotation":1)"));
  EXPECT_EQ(launch.verification_keys.size(), 1U);
}

TEST(TokenFiles, EachMistakeIsNamedWithoutItsContent) {
  const auto error = [](const TokenConfig& config) { return std::string{TokenAuthority::load(config).status().message()}; };
  const KeyFiles files;
  TokenConfig config = files.config();
  config.signing_key_path = "/nonexistent";
  EXPECT_EQ(error(config), "cannot read sandbox launch-signing private key from /nonexistent");
  config = files.config();
  config.ttl = std::chrono::seconds{59};
  EXPECT_THAT(error(config), HasSubstr("session token lifetime must be between 60 and 3600 seconds"));
  config.ttl = std::chrono::seconds{3600};
  EXPECT_EQ(error(config), "");
  config.gateway_id = "a b";
  EXPECT_THAT(error(config), HasSubstr("gateway ID is invalid"));
  const KeyFiles other;
  config = files.config();
  config.public_key_path = other.config().public_key_path;
  EXPECT_EQ(error(config), "sandbox launch-signing private and public keys do not match");
  files.write("kid", "");
  EXPECT_THAT(error(files.config()), HasSubstr("is empty"));
  files.write("kid", "k");
  files.write("public.pem", "nothing");
  EXPECT_THAT(error(files.config()), HasSubstr("expected Ed25519 private and public keys"));
}

}  // namespace
}  // namespace openshell::api
