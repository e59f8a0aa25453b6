// A provider is attached and deleted at the same time: one of the two is refused, whoever comes first.
#include <gmock/gmock.h>

#include <future>

#include "storage/store.hpp"
#include "tests/integration/gateway/gateway_stub.hpp"
#include "tests/integration/gateway/seeded_sandbox.hpp"

namespace openshell::gateway {
namespace {

using namespace openshell::v1;

constexpr int kRounds = 120;
constexpr int kSteps = 6;

class AttachRace : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(seed_box(gateway_)) << gateway_.log();
    ASSERT_TRUE(gateway_.start()) << gateway_.log();
    stub_ = connect(gateway_, own_tls(gateway_));
  }
  template <class Request, class Response>
  grpc::Status call(grpc::Status (OpenShell::Stub::*method)(grpc::ClientContext*, const Request&, Response*), Request request,
                    Response* response) {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    request.mutable_workspace_scope()->set_workspace("default");
    return ((*stub_).*method)(&ctx, request, response);
  }
  grpc::Status create() {
    CreateProviderRequest request;
    request.mutable_provider()->mutable_metadata()->set_name("p");
    request.mutable_provider()->set_type("generic");
    (*request.mutable_provider()->mutable_credentials())["TOKEN"] = "value";
    ProviderResponse response;
    return call(&OpenShell::Stub::CreateProvider, request, &response);
  }
  grpc::Status attach() {
    AttachSandboxProviderRequest request;
    request.set_sandbox("box");
    request.set_provider("p");
    AttachSandboxProviderResponse response;
    return call(&OpenShell::Stub::AttachSandboxProvider, request, &response);
  }
  grpc::Status detach() {
    DetachSandboxProviderRequest request;
    request.set_sandbox("box");
    request.set_provider("p");
    DetachSandboxProviderResponse response;
    return call(&OpenShell::Stub::DetachSandboxProvider, request, &response);
  }
  grpc::Status remove() {
    DeleteProviderRequest request;
    request.set_name("p");
    DeleteProviderResponse response;
    return call(&OpenShell::Stub::DeleteProvider, request, &response);
  }
  bool attached() {
    GetSandboxRequest request;
    request.set_name("box");
    SandboxResponse response;
    EXPECT_TRUE(call(&OpenShell::Stub::GetSandbox, request, &response).ok());
    return response.sandbox().spec().providers_size() == 1;
  }
  GatewayProcess gateway_;
  Stub stub_;
};

TEST_F(AttachRace, AnAttachedProviderIsNotDeletedAndADeletedOneNotAttached) {
  int attachments = 0;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(create().ok());
    auto attaching = std::async(std::launch::async, [&] { return attach(); });
    for (int i = 0; i < round % kSteps; ++i) attached();  // the deletion comes a little later each time
    const auto removed = remove();
    const auto added = attaching.get();
    EXPECT_NE(added.ok(), removed.ok()) << added.error_message() << " / " << removed.error_message();
    EXPECT_EQ(attached(), added.ok());
    if (!added.ok()) {
      EXPECT_EQ(added.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
      EXPECT_EQ(added.error_message(), "provider 'p' not found");
      continue;
    }
    ++attachments;
    EXPECT_EQ(removed.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(removed.error_message(), "provider 'p' is attached to sandbox(es): box");
    ASSERT_TRUE(detach().ok());
    ASSERT_TRUE(remove().ok());
  }
  RecordProperty("attachments_won", attachments);
}

}  // namespace
}  // namespace openshell::gateway
