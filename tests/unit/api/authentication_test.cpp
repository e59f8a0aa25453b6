#include "api/authentication.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "pki/certificate.hpp"
#include "storage/store.hpp"
#include "tests/unit/api/key_files.hpp"

namespace openshell::api {
namespace {

class OneSandbox final : public SandboxIdentities {
 public:
  void find(const SandboxId& id, std::function<void(absl::StatusOr<SandboxIdentity>)> then) override {
    if (id != record.id) return then(absl::NotFoundError("no"));
    then(record);
  }
  void rotate(const SandboxId&, const std::string&, const std::string&, const RefreshReplay&,
              std::function<void(absl::Status)> then) override {
    then(absl::OkStatus());
  }
  SandboxIdentity record{SandboxId{"s1"}, GenerationId{"g1"}, 1, storage::new_uuid(), std::nullopt, true, "process", ""};
};

std::string certificate(const std::string& name, std::vector<std::string> units) {
  pki::AuthorityProfile authority;
  authority.common_name = "ca";
  pki::LeafProfile leaf;
  leaf.common_name = name;
  leaf.organizational_units = std::move(units);
  leaf.usage = pki::Usage::kClient;
  return pki::CertificateAuthority::create(authority)->issue(leaf, pki::KeyKind::kP256)->certificate.to_pem();
}

class Authentication : public testing::Test {
 protected:
  absl::StatusOr<Principal> ask(const AuthenticationConfig& config, const CallFacts& facts) {
    const Authenticator authenticator{config, tokens_.get(), &sandboxes_};
    absl::StatusOr<Principal> out = absl::UnknownError("no answer");
    authenticator.authenticate(facts, [&](absl::StatusOr<Principal> principal) { out = std::move(principal); });
    return out;
  }
  std::string bearer(const std::string& token_id, const std::string& sandbox = "s1", const std::string& generation = "g1",
                     std::uint64_t epoch = 1) const {
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    return "Bearer " +
           std::string{tokens_->sign(TokenKind::kGateway, {SandboxId{sandbox}, GenerationId{generation}, epoch, token_id, now, now + 600})
                           .reveal()};
  }
  KeyFiles files_;
  std::unique_ptr<TokenAuthority> tokens_ = *TokenAuthority::load(files_.config());
  OneSandbox sandboxes_;
};

const AuthenticationConfig kMtls{true, false, false};
const AuthenticationConfig kOpen{false, false, false};

TEST_F(Authentication, ACertificateIsAUserUnlessItIsASupervisors) {
  const auto user = ask(kMtls, {"GetSandbox", {}, certificate("anna", {"openshell-user"})});
  ASSERT_TRUE(user.ok());
  EXPECT_EQ(std::get<User>(*user).identity.subject, "anna");
  EXPECT_EQ(std::get<User>(*user).identity.roles, std::vector<std::string>{"openshell-user"});
  EXPECT_EQ(ask(kMtls, {"GetSandbox", {}, certificate("x", {"openshell-sandbox"})}).status().message(), "missing client certificate");
  EXPECT_EQ(ask(kMtls, {"GetSandbox", {}, ""}).status().message(), "missing client certificate");
}

TEST_F(Authentication, AnUnknownBearerIsRefusedWhateverElseIsThere) {
  const std::string good = certificate("anna", {});
  for (const char* value : {"Bearer abc", "Bearer ", "Basic abc", "bearer abc", ""}) {
    for (const auto& config : {kMtls, kOpen, AuthenticationConfig{true, true, true}}) {
      EXPECT_EQ(ask(config, {"GetSandbox", {value}, good}).status().message(), "invalid token: unknown signing key") << value;
    }
  }
  EXPECT_EQ(ask(kMtls, {"GetSandbox", {"Bearer a", "Bearer b"}, good}).status().message(), "duplicate authorization metadata");
}

TEST_F(Authentication, WithoutAnyConfigurationTheLocalUser) {
  const auto user = ask(kOpen, {"GetSandbox", {}, ""});
  ASSERT_TRUE(user.ok());
  EXPECT_EQ(std::get<User>(*user).identity.subject, "unauthenticated-local-dev");
  EXPECT_TRUE(ask({true, false, true}, {"GetSandbox", {}, ""}).ok());
}

TEST_F(Authentication, AnOperatorNeedsTheUnitTheSettingAndNoBearer) {
  const std::string op = certificate("ops", {"operator"});
  const AuthenticationConfig on{true, true, false};
  ASSERT_TRUE(ask(on, {"GetProviderCredentials", {}, op}).ok());
  EXPECT_TRUE(std::holds_alternative<Operator>(*ask(on, {"GetProviderCredentials", {}, op})));
  EXPECT_TRUE(std::holds_alternative<User>(*ask(kMtls, {"GetProviderCredentials", {}, op})));
  EXPECT_TRUE(std::holds_alternative<User>(*ask(on, {"GetProviderCredentials", {}, certificate("ops", {"Operator"})})));
  EXPECT_FALSE(ask(on, {"GetProviderCredentials", {}, certificate("ops", {"operator", "openshell-sandbox"})}).ok());
}

TEST_F(Authentication, GW_12_ASandboxTokenMustFitTheRecordAsItIsNow) {
  const std::string current = sandboxes_.record.gateway_token_id;
  const auto ask_with = [&](const std::string& value, const char* method = "GetSandboxConfig") {
    return ask(kMtls, {method, {value}, certificate("anna", {})});
  };
  const auto caller = ask_with(bearer(current));
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(std::get<SandboxCaller>(*caller).id, SandboxId{"s1"});
  const std::string mismatch = "gateway token does not match the active sandbox identity";
  EXPECT_EQ(ask_with(bearer(storage::new_uuid())).status().message(), mismatch);
  EXPECT_EQ(ask_with(bearer(current, "s1", "g0")).status().message(), mismatch);
  EXPECT_EQ(ask_with(bearer(current, "s1", "g1", 2)).status().message(), mismatch);
  EXPECT_EQ(ask_with(bearer(current, "s2")).status().message(), "sandbox identity does not exist");
  sandboxes_.record.active = false;
  EXPECT_EQ(ask_with(bearer(current)).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Authentication, AConsumedTokenMayOnlyRepeatItsRefresh) {
  const std::string old = sandboxes_.record.gateway_token_id;
  sandboxes_.record.gateway_token_id = storage::new_uuid();
  sandboxes_.record.replay = RefreshReplay{old, "hash", storage::new_uuid(), 0, 0};
  EXPECT_TRUE(ask(kMtls, {"RefreshSandboxToken", {bearer(old)}, ""}).ok());
  EXPECT_FALSE(ask(kMtls, {"GetSandboxConfig", {bearer(old)}, ""}).ok());
}

/// Knows one token.
class OneUser final : public oidc::Issuer {
 public:
  void identify(std::string_view token, std::function<void(absl::StatusOr<Identity>)> then) override {
    if (token != "pat") return then(absl::UnauthenticatedError("invalid token: InvalidSignature"));
    then(Identity{"u1", "Pat", {"openshell-user"}, {}, Identity::Source::kOidc});
  }
};

TEST_F(Authentication, WithAnIssuerTheBearerAloneDecides) {
  OneUser issuer;
  const auto ask_both = [&](const AuthenticationConfig& config, const CallFacts& facts) {
    const Authenticator authenticator{config, tokens_.get(), &sandboxes_, &issuer};
    absl::StatusOr<Principal> out = absl::UnknownError("no answer");
    authenticator.authenticate(facts, [&](absl::StatusOr<Principal> principal) { out = std::move(principal); });
    return out;
  };
  const std::string pem = certificate("cert-user", {"openshell-user"});
  for (const auto& config : {kMtls, kOpen}) {
    EXPECT_EQ(std::get<User>(*ask_both(config, {"GetSandbox", {"Bearer pat"}, pem})).identity.subject, "u1");
    EXPECT_EQ(ask_both(config, {"GetSandbox", {"Bearer mat"}, pem}).status().message(), "invalid token: InvalidSignature");
    EXPECT_EQ(ask_both(config, {"GetSandbox", {"Basic pat"}, pem}).status().message(), "invalid token: unknown signing key");
    EXPECT_EQ(ask_both(config, {"GetSandbox", {"Bearer pat", "Bearer pat"}, pem}).status().message(), "duplicate authorization metadata");
    EXPECT_EQ(ask_both(config, {"GetSandbox", {}, ""}).status().message(), "missing authorization header")
        << "no local user beside an issuer";
  }
  EXPECT_EQ(std::get<User>(*ask_both(kMtls, {"GetSandbox", {}, pem})).identity.subject, "cert-user");
  const auto supervisor = ask_both(kOpen, {"ConnectSupervisor", {bearer(sandboxes_.record.gateway_token_id)}, ""});
  EXPECT_TRUE(supervisor.ok() && std::holds_alternative<SandboxCaller>(*supervisor)) << "a launch token is none of the issuer's";
}

// The answer from memory is the answer, the bound holds, and what is no certificate is neither answered nor kept.
TEST(KnownCertificates, AHolderIsReadOnceAndTheBoundHolds) {
  KnownCertificates known;
  const std::string ada = certificate("ada", {"openshell-user"}), bob = certificate("bob", {});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(known.holder_of(ada)->identity.subject, "ada");
    EXPECT_EQ(known.holder_of(ada)->identity.roles, std::vector<std::string>{"openshell-user"});
    EXPECT_EQ(known.holder_of(bob)->identity.subject, "bob");
  }
  EXPECT_EQ(known.size(), 2U);
  EXPECT_EQ(known.holder_of("no certificate").status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(known.size(), 2U);
  // Text behind the certificate makes another key of the same holder.
  for (std::size_t i = 2; i < KnownCertificates::kMax; ++i) ASSERT_TRUE(known.holder_of(ada + std::string(i, '\n')).ok());
  EXPECT_EQ(known.size(), KnownCertificates::kMax);
  EXPECT_EQ(known.holder_of(ada + "\n")->identity.subject, "ada");
  EXPECT_EQ(known.size(), 1U);
}

}  // namespace
}  // namespace openshell::api
