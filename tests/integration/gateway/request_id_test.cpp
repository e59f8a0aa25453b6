// A request_id against the real program: repeated, changed, across a restart, after a replaced key.
#include <gmock/gmock.h>

#include <future>

#include "rpc_status.pb.h"
#include "storage/store.hpp"
#include "tests/integration/gateway/gateway_stub.hpp"

namespace openshell::gateway {
namespace {

using namespace openshell::v1;

constexpr const char* kId = "6f1d2c3b-0000-4000-8000-00000000aaaa";

struct Outcome {
  grpc::Status status;
  ProviderResponse response;
  bool replayed = false;
  std::string reason;
};

std::string reason_of(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info)) return info.reason();
  }
  return {};
}

class RequestIds : public testing::Test {
 protected:
  void SetUp() override { restart(); }
  void restart() {
    if (gateway_.pid() > 0) gateway_.terminate(SIGKILL);
    ASSERT_TRUE(gateway_.start()) << gateway_.log();
    stub_ = connect(gateway_, own_tls(gateway_));
  }
  Outcome create(const std::string& name, const std::string& id, const std::string& secret = "s3cret-value") {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    CreateProviderRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.mutable_provider()->mutable_metadata()->set_name(name);
    request.mutable_provider()->set_type("generic");
    (*request.mutable_provider()->mutable_credentials())["TOKEN"] = secret;
    request.set_request_id(id);
    Outcome out;
    out.status = stub_->CreateProvider(&ctx, request, &out.response);
    out.replayed = ctx.GetServerInitialMetadata().count("openshell-replayed") == 1;
    out.reason = reason_of(out.status);
    return out;
  }
  DeletionOutcome remove(const std::string& name, const std::string& id) {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    DeleteProviderRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.set_name(name);
    request.set_request_id(id);
    DeleteProviderResponse response;
    EXPECT_TRUE(stub_->DeleteProvider(&ctx, request, &response).ok());
    return response.outcome();
  }
  int providers() {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    ListProvidersRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    ListProvidersResponse response;
    EXPECT_TRUE(stub_->ListProviders(&ctx, request, &response).ok());
    return response.providers_size();
  }
  GatewayProcess gateway_;
  Stub stub_;
};

TEST_F(RequestIds, OneProviderHoweverOftenAndAcrossARestart) {
  const auto first = create("", kId);  // a generated name: a second run would show
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_FALSE(first.replayed);
  const auto again = create("", "6F1D2C3B-0000-4000-8000-00000000AAAA");
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(again.response.SerializeAsString(), first.response.SerializeAsString());
  EXPECT_EQ(create("", kId, "another").reason, "REQUEST_ID_PAYLOAD_MISMATCH");
  restart();
  const auto later = create("", kId);
  ASSERT_TRUE(later.status.ok()) << later.status.error_message();
  EXPECT_TRUE(later.replayed);
  EXPECT_EQ(later.response.provider().metadata().id(), first.response.provider().metadata().id());
  EXPECT_EQ(providers(), 1);
}

TEST_F(RequestIds, AGatewayKilledAtAnyMomentNeverRunsItTwice) {
  int uncertain = 0;
  for (int round = 0; round < 12; ++round) {
    const std::string id = "6f1d2c3b-0000-4000-8000-" + std::to_string(100'000'000'000 + round);
    const int before = providers();
    auto first = std::async(std::launch::async, [&] { return create("", id); });
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds{300 * round};  // another moment each time
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    gateway_.terminate(SIGKILL);
    const auto told = first.get();
    ASSERT_NO_FATAL_FAILURE(restart());
    const auto again = create("", id);
    const int made = providers() - before;
    EXPECT_LE(made, 1);
    if (again.status.ok()) {
      EXPECT_EQ(made, 1);
    } else {
      EXPECT_EQ(again.reason, "REQUEST_OUTCOME_UNCERTAIN") << again.status.error_message();
      ++uncertain;
    }
    if (told.status.ok()) {
      EXPECT_TRUE(again.replayed) << "what the caller was told is on the disk";
      EXPECT_EQ(again.response.provider().metadata().id(), told.response.provider().metadata().id());
    }
  }
  RecordProperty("uncertain", uncertain);
}

TEST_F(RequestIds, WhatFailedIsNeverTriedAgain) {
  ASSERT_TRUE(create("taken", "").status.ok());
  EXPECT_EQ(create("taken", kId).status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(create("taken", kId).reason, "REQUEST_OUTCOME_UNCERTAIN");
  restart();
  EXPECT_EQ(create("taken", kId).reason, "REQUEST_OUTCOME_UNCERTAIN");
  EXPECT_EQ(create("other", "nope").status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RequestIds, ARepeatedDeletionLeavesTheSuccessorAlone) {
  ASSERT_TRUE(create("p", "").status.ok());
  EXPECT_EQ(remove("p", kId), DELETION_OUTCOME_COMPLETED);
  ASSERT_TRUE(create("p", "").status.ok());
  EXPECT_EQ(remove("p", kId), DELETION_OUTCOME_COMPLETED);
  EXPECT_EQ(providers(), 1);
}

TEST_F(RequestIds, NoSecretIsInTheRecordAndAReplacedKeyEndsReplays) {
  ASSERT_TRUE(create("p", kId).status.ok());
  gateway_.terminate(SIGKILL);
  {
    auto store = *storage::open_store("sqlite:" + gateway_.state() + "/gateway/openshell.db");
    ASSERT_TRUE(store
                    ->read_and_wait([](storage::Transaction& tx) {
                      storage::ListQuery query;
                      query.type = storage::types::kMutationAdmission;
                      const auto page = *tx.list(query);
                      EXPECT_EQ(page.objects.size(), 1U);
                      EXPECT_THAT(page.objects.at(0).payload, testing::Not(testing::HasSubstr("s3cret-value")));
                      EXPECT_THAT(page.objects.at(0).workspace, testing::StartsWith("_mutation/"));
                      return absl::OkStatus();
                    })
                    .ok());
  }
  std::filesystem::remove_all(gateway_.tls());
  ASSERT_TRUE(generate_certs({gateway_.tls(), {}, ""}).ok());
  ASSERT_TRUE(gateway_.start()) << gateway_.log();
  stub_ = connect(gateway_, own_tls(gateway_));
  EXPECT_EQ(create("p", kId).reason, "REQUEST_REPLAY_UNAVAILABLE");
}

}  // namespace
}  // namespace openshell::gateway
