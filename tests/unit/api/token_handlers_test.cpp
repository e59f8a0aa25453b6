// IssueSandboxToken for a caller that a compute driver vouches for, which no driver of this build does: handler and a scripted principal.
#include <gtest/gtest.h>

#include "api/handlers.hpp"
#include "openshell.pb.h"
#include "tests/unit/api/key_files.hpp"

namespace openshell::api {
namespace {

using namespace openshell::v1;

constexpr const char* kSandbox = "11111111-0000-4000-8000-000000000001";
constexpr const char* kGeneration = "22222222-0000-4000-8000-000000000001";
constexpr const char* kTokenId = "33333333-0000-4000-8000-000000000001";

/// One sandbox, with what its record says.
class OneSandbox final : public SandboxIdentities {
 public:
  void find(const SandboxId& id, std::function<void(absl::StatusOr<SandboxIdentity>)> then) override {
    id == record.id ? then(record) : then(absl::NotFoundError("no such sandbox"));
  }
  void rotate(const SandboxId&, const std::string&, const std::string&, const RefreshReplay&,
              std::function<void(absl::Status)> then) override {
    then(rotated);
  }
  SandboxIdentity record;
  absl::Status rotated;
};

class Answer final : public internal::Call {
 public:
  void read(std::shared_ptr<google::protobuf::MessageLite>, std::function<void(bool)> then) override { then(true); }
  void write(const google::protobuf::MessageLite&, std::function<void(bool)>) override {}
  void finish(absl::Status end, const google::protobuf::MessageLite* last) override {
    if (over_) return;
    over_ = true;
    status = std::move(end);
    if (last != nullptr) bytes = last->SerializeAsString();
  }
  void on_done(std::function<void()>) override {}
  std::size_t queued_bytes() const override { return 0; }
  bool over() const override { return over_; }
  absl::Status status;
  std::string bytes;

 private:
  bool over_ = false;
};

class TokenHandlers : public testing::Test {
 protected:
  TokenHandlers() {
    sandboxes_.record.id = SandboxId{kSandbox};
    sandboxes_.record.generation = GenerationId{kGeneration};
    sandboxes_.record.auth_epoch = 4;
    sandboxes_.record.gateway_token_id = kTokenId;
    sandboxes_.record.active = true;
    sandboxes_.record.driver_name = "k8s";
    sandboxes_.record.runtime_identity = "pod-1";
    tokens_ = *TokenAuthority::load(keys_.config());
    add_token_handlers(router_, tokens_.get(), &sandboxes_);
  }
  std::shared_ptr<Answer> call(const std::string& method, const Principal& principal) {
    auto ctx = std::make_shared<CallContext>();
    ctx->method = method;
    ctx->principal = principal;
    auto answer = std::make_shared<Answer>();
    (*router_.find(method))(ctx, answer);
    return answer;
  }
  static SandboxCaller pod(const std::string& identity = "pod-1") {
    SandboxCaller caller;
    caller.id = SandboxId{kSandbox};
    caller.by_driver = true;
    caller.driver_name = "k8s";
    caller.runtime_identity = identity;
    return caller;
  }
  KeyFiles keys_;
  OneSandbox sandboxes_;
  std::unique_ptr<TokenAuthority> tokens_;
  Router router_;
};

TEST_F(TokenHandlers, WhomTheDriverVouchesForGetsTheRecordedIdentityAgainAndAgain) {
  for (int i = 0; i < 2; ++i) {
    const auto answer = call("IssueSandboxToken", pod());
    ASSERT_TRUE(answer->status.ok()) << answer->status;
    IssueSandboxTokenResponse response;
    ASSERT_TRUE(response.ParseFromString(answer->bytes));
    const auto now = response.expiration_time().seconds() - 600;
    const auto claims = tokens_->verify(TokenKind::kGateway, response.token(), now);
    ASSERT_TRUE(claims.ok()) << claims.status();
    EXPECT_EQ(claims->token_id, kTokenId);
    EXPECT_EQ(claims->generation.str(), kGeneration);
    EXPECT_EQ(claims->auth_epoch, 4U);
  }
}

TEST_F(TokenHandlers, AnotherRuntimeDriverOrSandboxGetsNothing) {
  EXPECT_EQ(call("IssueSandboxToken", pod("pod-2"))->status,
            absl::PermissionDeniedError("compute runtime identity does not match the sandbox"));
  auto other_driver = pod();
  other_driver.driver_name = "podman";
  EXPECT_EQ(call("IssueSandboxToken", other_driver)->status.code(), absl::StatusCode::kPermissionDenied);
  auto unknown = pod();
  unknown.id = SandboxId{"z"};
  EXPECT_EQ(call("IssueSandboxToken", unknown)->status, absl::NotFoundError("sandbox not found"));
  sandboxes_.record.runtime_identity.clear();
  EXPECT_EQ(call("IssueSandboxToken", pod(""))->status, absl::PermissionDeniedError("sandbox runtime identity is invalid"));
}

TEST_F(TokenHandlers, EachOfTheTwoIsForItsOwnKindOfCaller) {
  EXPECT_EQ(call("RefreshSandboxToken", pod())->status,
            absl::PermissionDeniedError("this principal cannot refresh; use IssueSandboxToken for bootstrap"));
  EXPECT_EQ(call("IssueSandboxToken", User{})->status, absl::PermissionDeniedError("IssueSandboxToken requires a sandbox principal"));
}

TEST_F(TokenHandlers, ALostRaceOfTwoRotationsIsAborted) {
  sandboxes_.rotated = absl::AbortedError("changed");
  SandboxCaller caller;
  caller.id = SandboxId{kSandbox};
  caller.generation = GenerationId{kGeneration};
  caller.auth_epoch = 4;
  caller.token_id = kTokenId;
  EXPECT_EQ(call("RefreshSandboxToken", caller)->status, absl::AbortedError("rotate gateway token: changed"));
}

TEST_F(TokenHandlers, WithoutASigningKeyBothAreUnavailable) {
  Router router;
  add_token_handlers(router, nullptr, &sandboxes_);
  auto ctx = std::make_shared<CallContext>();
  ctx->principal = pod();
  auto answer = std::make_shared<Answer>();
  (*router.find("IssueSandboxToken"))(ctx, answer);
  EXPECT_EQ(answer->status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace openshell::api
