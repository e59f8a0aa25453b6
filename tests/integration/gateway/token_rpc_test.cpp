// IssueSandboxToken and RefreshSandboxToken of the real program. The sandbox is a stored record that nobody recovers (its launch was given
// up), its supervisor is this test, which signs with the gateway's own key.
#include <gmock/gmock.h>

#include "api/tokens.hpp"
#include "tests/integration/gateway/gateway_stub.hpp"
#include "tests/integration/gateway/seeded_sandbox.hpp"

namespace openshell::gateway {
namespace {

using namespace openshell::v1;
using api::TokenClaims;
using api::TokenKind;
using testing::HasSubstr;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class TokenRpcs : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(gateway_.start()) << gateway_.log();
    ASSERT_EQ(gateway_.terminate(), 0);
    ASSERT_TRUE(store()
                    ->write_and_wait([](storage::Transaction& tx) {
                      auto made = tx.create(to_row(seeded(kSandbox, "one")));
                      return made.ok() ? tx.create(to_row(seeded(kOther, "two"))).status() : made.status();
                    })
                    .ok());
    start();
    const std::string jwt = gateway_.tls() + "/jwt/";
    authority_ = *api::TokenAuthority::load({jwt + "signing.pem", jwt + "public.pem", jwt + "kid", "openshell", {}});
  }
  void start() {
    ASSERT_TRUE(gateway_.start()) << gateway_.log();
    stub_ = connect(gateway_, {own_tls(gateway_).ca, "", ""});
  }
  std::unique_ptr<storage::Store> store() const { return *storage::open_store("sqlite:" + gateway_.state() + "/gateway/openshell.db"); }
  static TokenClaims claims() { return {SandboxId{kSandbox}, GenerationId{kGeneration}, kEpoch, kTokenId, unix_now(), 0}; }
  std::string sign(const TokenClaims& of, TokenKind kind = TokenKind::kGateway) const {
    return std::string{authority_->sign(kind, of).reveal()};
  }

  grpc::Status refresh(const std::string& token, RefreshSandboxTokenResponse* response = nullptr, const std::string& service = "") {
    grpc::ClientContext ctx;
    prepare(ctx, {{{"authorization", "Bearer " + token}}});
    RefreshSandboxTokenRequest request;
    if (!service.empty()) request.add_extension_service_names(service);
    RefreshSandboxTokenResponse own;
    return stub_->RefreshSandboxToken(&ctx, request, response != nullptr ? response : &own);
  }
  grpc::Status issue(const Headers& headers) {
    grpc::ClientContext ctx;
    prepare(ctx, headers);
    IssueSandboxTokenResponse response;
    return stub_->IssueSandboxToken(&ctx, {}, &response);
  }
  /// Any call that only the sandbox's own supervisor may make.
  grpc::Status environment(const std::string& token, const std::string& sandbox = kSandbox) {
    grpc::ClientContext ctx;
    prepare(ctx, {{{"authorization", "Bearer " + token}}});
    GetSandboxProviderEnvironmentRequest request;
    request.set_sandbox_id(sandbox);
    GetSandboxProviderEnvironmentResponse response;
    return stub_->GetSandboxProviderEnvironment(&ctx, request, &response);
  }
  void refused(const std::string& token, const std::string& text) {
    const auto status = refresh(token);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << text;
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  }

  GatewayProcess gateway_;
  Stub stub_;
  std::unique_ptr<api::TokenAuthority> authority_;
};

TEST_F(TokenRpcs, ARefreshGivesBothTokensAndEndsTheOldOne) {
  const std::string old = sign(claims());
  ASSERT_TRUE(environment(old).ok());
  RefreshSandboxTokenResponse fresh;
  const auto status = refresh(old, &fresh);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(fresh.session_id(), kGeneration);
  EXPECT_EQ(fresh.credential_epoch(), kEpoch);
  EXPECT_FALSE(fresh.has_expiration_time()) << "local tokens do not expire";
  const auto gateway = authority_->verify(TokenKind::kGateway, fresh.token(), unix_now());
  const auto boundary = authority_->verify(TokenKind::kBoundary, fresh.sandbox_token(), unix_now());
  ASSERT_TRUE(gateway.ok() && boundary.ok()) << gateway.status() << boundary.status();
  EXPECT_EQ(gateway->sandbox.str(), kSandbox);
  EXPECT_EQ(gateway->generation.str(), kGeneration);
  EXPECT_EQ(gateway->auth_epoch, kEpoch);
  EXPECT_NE(gateway->token_id, kTokenId);
  EXPECT_NE(gateway->token_id, boundary->token_id);
  EXPECT_TRUE(environment(fresh.token()).ok());
  EXPECT_EQ(environment(old).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(environment(fresh.sandbox_token()).error_code(), grpc::StatusCode::UNAUTHENTICATED) << "that one is for the sandbox";
}

TEST_F(TokenRpcs, ALostAnswerIsRepeatedAlsoByTheNextGateway) {
  const std::string old = sign(claims());
  RefreshSandboxTokenResponse first, again, later;
  ASSERT_TRUE(refresh(old, &first).ok());
  ASSERT_TRUE(refresh(old, &again).ok());
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  gateway_.terminate(SIGKILL);
  start();
  ASSERT_TRUE(refresh(old, &later).ok());
  EXPECT_EQ(later.SerializeAsString(), first.SerializeAsString());
  EXPECT_TRUE(environment(first.token()).ok());
}

TEST_F(TokenRpcs, OnlyTheLastRotationIsRepeatedAndOnlyForAWhile) {
  const std::string old = sign(claims());
  RefreshSandboxTokenResponse first, second;
  ASSERT_TRUE(refresh(old, &first).ok());
  ASSERT_TRUE(refresh(first.token(), &second).ok());
  EXPECT_NE(second.token(), first.token());
  refused(old, "gateway token does not match the active sandbox identity");
  gateway_.terminate(SIGKILL);
  ASSERT_TRUE(store()
                  ->write_and_wait([](storage::Transaction& tx) {
                    auto row = *tx.get(storage::types::kSandbox, kSandbox);
                    auto stored = *sandbox_from_row(*row);
                    EXPECT_EQ(stored.refresh_replay_until() - stored.refresh_issued_at(), 30);
                    stored.set_refresh_replay_until(unix_now() - 1);  // as if the 30 s were over
                    row->payload = to_row(stored).payload;
                    return tx.update(*row).status();
                  })
                  .ok());
  start();
  refused(first.token(), "gateway refresh retry does not match the active lineage");
  EXPECT_TRUE(refresh(second.token()).ok());
}

TEST_F(TokenRpcs, WhatIsNotThisLaunchIsRefused) {
  const std::string mismatch = "gateway token does not match the active sandbox identity";
  auto other = claims();
  other.generation = GenerationId{"22222222-0000-4000-8000-00000000ffff"};
  refused(sign(other), mismatch);
  other = claims();
  other.auth_epoch = kEpoch - 1;
  refused(sign(other), mismatch);
  other.auth_epoch = kEpoch + 1;
  refused(sign(other), mismatch);
  other = claims();
  other.token_id = "33333333-0000-4000-8000-00000000ffff";
  refused(sign(other), mismatch);
  other = claims();
  other.sandbox = SandboxId{"11111111-0000-4000-8000-00000000ffff"};
  refused(sign(other), "sandbox identity does not exist");
  refused(sign(claims(), TokenKind::kBoundary), "");
  std::string forged = sign(claims());
  const auto at = forged.rfind('.') + 5;
  forged[at] = forged[at] == 'A' ? 'B' : 'A';
  refused(forged, "invalid gateway session");
  EXPECT_TRUE(refresh(sign(claims())).ok()) << "none of these has rotated anything";
}

TEST_F(TokenRpcs, AnExpiredTokenIsRefusedAtTheEndOfTheLeeway) {
  auto expired = claims();
  expired.issued_at = unix_now() - 700;
  expired.expires_at = unix_now() - api::kTokenLeewaySeconds - 1;
  refused(sign(expired), "invalid gateway session");
  expired.expires_at = unix_now() - 5;  // clocks differ
  EXPECT_TRUE(refresh(sign(expired)).ok());
}

TEST_F(TokenRpcs, ASandboxIsItselfAndNoOther) {
  const std::string token = sign(claims());
  const auto foreign = environment(token, kOther);
  EXPECT_EQ(foreign.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(foreign.error_message(), HasSubstr("cross-sandbox access denied"));
  ASSERT_TRUE(refresh(token).ok());
  auto other = claims();
  other.sandbox = SandboxId{kOther};
  EXPECT_TRUE(environment(sign(other), kOther).ok()) << "the other one's token is still what it was";
}

TEST_F(TokenRpcs, ExtensionCredentialsAreAllOrNothing) {
  const auto status = refresh(sign(claims()), nullptr, "scanner");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("'scanner' is not selected"));
  EXPECT_TRUE(environment(sign(claims())).ok()) << "nothing was rotated";
}

TEST_F(TokenRpcs, NobodyElseGetsATokenIssued) {
  const auto by_session = issue({{{"authorization", "Bearer " + sign(claims())}}});
  EXPECT_EQ(by_session.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(by_session.error_message(), "this principal cannot mint a sandbox token; use RefreshSandboxToken");
  EXPECT_EQ(issue({}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(issue({{{"authorization", "Bearer x"}}}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  stub_ = connect(gateway_, own_tls(gateway_));  // a user
  EXPECT_EQ(issue({}).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  grpc::ClientContext ctx;
  prepare(ctx, {});
  RefreshSandboxTokenResponse response;
  EXPECT_EQ(stub_->RefreshSandboxToken(&ctx, {}, &response).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const std::string bearer = "Bearer " + sign(claims());
  EXPECT_EQ(issue({{{"authorization", bearer}, {"authorization", bearer}}}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace openshell::gateway
