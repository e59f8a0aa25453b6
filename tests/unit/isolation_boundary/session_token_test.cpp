#include "isolation/boundary/session_token.hpp"

#include <absl/strings/escaping.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

namespace openshell::boundary {
namespace {

struct Signer {
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  ~Signer() { EVP_PKEY_free(key); }
  std::string public_pem() const {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PUBKEY(bio, key);
    char* data = nullptr;
    const long n = BIO_get_mem_data(bio, &data);
    std::string pem(data, static_cast<std::size_t>(n));
    BIO_free(bio);
    return pem;
  }
  std::string sign(const std::string& header, const std::string& payload) const {
    const std::string head = absl::WebSafeBase64Escape(header) + "." + absl::WebSafeBase64Escape(payload);
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    EVP_DigestSignInit(context, nullptr, nullptr, nullptr, key);
    std::string signature(64, '\0');
    std::size_t n = 64;
    EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &n, reinterpret_cast<const unsigned char*>(head.data()),
                   head.size());
    EVP_MD_CTX_free(context);
    return head + "." + absl::WebSafeBase64Escape(signature);
  }
};

constexpr std::int64_t kNow = 1'900'000'000;

SessionClaims claims() { return {"gw", "sb", "g1", 2, kNow, kNow + 3600, "1b671a64-40d5-491e-99b0-da01ff1f3341"}; }

class SessionToken : public ::testing::Test {
 protected:
  Signer signer;
  SessionTokenVerifier verifier = *SessionTokenVerifier::make({{"k1", signer.public_pem()}}, {"gw", "sb", "g1", 2});
  absl::StatusOr<SessionClaims> at(const SessionClaims& c, std::int64_t now = kNow) {
    return verifier.verify(signer.sign(session_token_header("k1"), session_token_payload(c)),
                           std::chrono::sys_seconds{std::chrono::seconds{now}});
  }
};

TEST_F(SessionToken, GoodOneIsTaken) {
  auto back = at(claims());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, claims());
}

TEST_F(SessionToken, TimeIsCheckedWithThirtySecondsOfLeeway) {
  EXPECT_TRUE(at(claims(), kNow + 3600 + 29).ok());
  EXPECT_FALSE(at(claims(), kNow + 3600 + 30).ok());
  EXPECT_TRUE(at(claims(), kNow - 30).ok());
  EXPECT_FALSE(at(claims(), kNow - 31).ok());
  auto c = claims();
  c.expires_at = c.issued_at + 3601;
  EXPECT_FALSE(at(c).ok()) << "lives longer than an hour";
  c.expires_at = c.issued_at + 59;
  EXPECT_FALSE(at(c).ok());
  c.expires_at = 0;
  EXPECT_TRUE(at(c, kNow + 1'000'000).ok()) << "0 does not expire";
}

TEST_F(SessionToken, BoundToSandboxGenerationEpochAndGateway) {
  auto c = claims();
  c.sandbox_id = "other";
  EXPECT_FALSE(at(c).ok());
  c = claims();
  c.runtime_generation = "g0";
  EXPECT_FALSE(at(c).ok());
  c = claims();
  c.auth_epoch = 1;
  EXPECT_FALSE(at(c).ok()) << "an older epoch is stale";
  c.auth_epoch = 3;
  EXPECT_TRUE(at(c).ok()) << "a newer one is staged";
  c = claims();
  c.gateway_id = "evil";
  EXPECT_FALSE(at(c).ok());
  c = claims();
  c.token_id = "1";
  EXPECT_FALSE(at(c).ok());
}

TEST_F(SessionToken, ForgeriesAreRefused) {
  const auto now = std::chrono::sys_seconds{std::chrono::seconds{kNow}};
  Signer other;
  const auto payload = session_token_payload(claims());
  EXPECT_FALSE(verifier.verify(other.sign(session_token_header("k1"), payload), now).ok());
  EXPECT_FALSE(verifier.verify(signer.sign(session_token_header("k2"), payload), now).ok());
  EXPECT_FALSE(verifier.verify(signer.sign(R"({"alg":"none","kid":"k1","typ":"openshell-sandbox-session+jwt"})", payload), now).ok());
  EXPECT_FALSE(verifier.verify(signer.sign(R"({"alg":"EdDSA","kid":"k1","typ":"JWT"})", payload), now).ok());
  auto extra = payload;
  extra.insert(1, "\"admin\":true,");
  EXPECT_FALSE(verifier.verify(signer.sign(session_token_header("k1"), extra), now).ok()) << "unknown claim";
  auto token = signer.sign(session_token_header("k1"), payload);
  EXPECT_TRUE(verifier.verify(token, now).ok());
  EXPECT_FALSE(verifier.verify(token + "=", now).ok());
  token[token.size() / 2] ^= 1;
  EXPECT_FALSE(verifier.verify(token, now).ok());
  for (const char* bad : {"", ".", "..", "a.b.c", "a.b.c.d"}) EXPECT_FALSE(verifier.verify(bad, now).ok());
}

TEST(Bearer, ExactlyOneToken) {
  EXPECT_EQ(*SessionTokenVerifier::bearer("Bearer abc"), "abc");
  for (const char* bad : {"", "Bearer", "Bearer ", "bearer abc", "Bearer a b", "Bearer  a", "Basic abc"})
    EXPECT_FALSE(SessionTokenVerifier::bearer(bad).ok()) << bad;
}

}  // namespace
}  // namespace openshell::boundary
