// M1: calls that are refused leave nothing behind in the gateway, whatever they are refused for.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <fstream>

#include "storage/store.hpp"
#include "tests/integration/gateway/gateway_stub.hpp"
#include "tests/integration/gateway/seeded_sandbox.hpp"

namespace openshell::gateway {
namespace {

using namespace openshell::v1;

constexpr int kWarmUp = 1500;
constexpr int kCalls = 10'000;
constexpr std::int64_t kAllowedGrowthKb = 4096;  // allocator noise; a leak of one request each would be many times that

/// Private memory of a process in KiB.
std::int64_t private_kb(pid_t pid) {
  std::ifstream file{cat("/proc/", pid, "/smaps_rollup")};
  for (std::string word; file >> word;) {
    if (word != "Pss_Anon:") continue;
    std::int64_t kb = 0;
    file >> kb;
    return kb;
  }
  return -1;
}

class RefusedCalls : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(seed_box(gateway_)) << gateway_.log();
    ASSERT_TRUE(gateway_.start()) << gateway_.log();
    stub_ = connect(gateway_, own_tls(gateway_));
    grpc::SslCredentialsOptions with;
    with.pem_root_certs = own_tls(gateway_).ca;
    with.pem_cert_chain = own_tls(gateway_).certificate;
    with.pem_private_key = own_tls(gateway_).key;
    channel_ = grpc::CreateChannel(gateway_.target(), grpc::SslCredentials(with));
    generic_ = std::make_unique<grpc::GenericStub>(channel_);
    stranger_ = connect(gateway_, {own_tls(gateway_).ca, "", ""});
  }

  /// Any bytes to any path.
  grpc::Status raw(const std::string& path, const std::string& bytes, bool cancel = false) {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    grpc::CompletionQueue queue;
    const grpc::Slice slice{bytes};
    const grpc::ByteBuffer request{&slice, 1};
    auto call = generic_->PrepareUnaryCall(&ctx, path, request, &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, this);
    if (cancel) ctx.TryCancel();
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }
  grpc::Status create(const std::string& name, const std::string& provider) {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    CreateSandboxRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.set_name(name);
    request.mutable_spec()->add_command("true");
    (*request.mutable_spec()->mutable_environment())["FILLER"] = std::string(2000, 'x');
    if (!provider.empty()) request.mutable_spec()->add_providers(provider);
    SandboxResponse response;
    return stub_->CreateSandbox(&ctx, request, &response);
  }
  static std::string method(const char* name) { return cat("/openshell.v1.OpenShell/", name); }

  /// One refused call of kind `i`. The codes are those that the interface promises.
  void refuse(int i) {
    GetSandboxRequest get;
    get.mutable_workspace_scope()->set_workspace("default");
    get.set_name(cat("missing-", i));
    SandboxResponse sandbox;
    grpc::ClientContext ctx;
    prepare(ctx, {});
    grpc::Status status;
    auto expected = grpc::StatusCode::OK;
    switch (i % 14) {
      case 0:
        status = stub_->GetSandbox(&ctx, get, &sandbox);
        expected = grpc::StatusCode::NOT_FOUND;
        break;
      case 1:
        status = stranger_->GetSandbox(&ctx, get, &sandbox);
        expected = grpc::StatusCode::UNAUTHENTICATED;
        break;
      case 2:
        ctx.AddMetadata("authorization", cat("Bearer ", std::string(500, 'x'), i));
        status = stub_->GetSandbox(&ctx, get, &sandbox);
        expected = grpc::StatusCode::UNAUTHENTICATED;
        break;
      case 3: {
        GetSandboxProviderEnvironmentRequest request;
        GetSandboxProviderEnvironmentResponse response;
        request.set_sandbox_id("x");
        status = stub_->GetSandboxProviderEnvironment(&ctx, request, &response);
        expected = grpc::StatusCode::PERMISSION_DENIED;
        break;
      }
      case 4:
        status = raw(method("NoSuchMethod"), "x");
        expected = grpc::StatusCode::UNIMPLEMENTED;
        break;
      case 5:
        status = raw(cat("/other.Service/", i), "x");
        expected = grpc::StatusCode::UNIMPLEMENTED;
        break;
      case 6:
        status = raw(method("CreateProvider"), std::string(64, '\xff'));
        expected = grpc::StatusCode::INVALID_ARGUMENT;
        break;
      case 7: {
        CreateProviderRequest request;
        ProviderResponse response;
        request.mutable_workspace_scope()->set_workspace("default");
        request.mutable_provider()->set_type("generic");
        (*request.mutable_provider()->mutable_credentials())[cat("not-a-name-", i)] = std::string(4000, 's');
        status = stub_->CreateProvider(&ctx, request, &response);
        expected = grpc::StatusCode::INVALID_ARGUMENT;
        break;
      }
      case 8: {
        ListSandboxesRequest request;
        ListSandboxesResponse response;
        request.mutable_workspace_scope()->set_workspace("default");
        request.set_page_token(cat("forged-", i));
        status = stub_->ListSandboxes(&ctx, request, &response);
        expected = grpc::StatusCode::INVALID_ARGUMENT;
        break;
      }
      case 9: {
        ExecSandboxRequest request;
        request.mutable_workspace_scope()->set_workspace("default");
        request.set_sandbox("missing");
        request.add_command("true");
        ExecSandboxEvent event;
        auto reader = stub_->ExecSandbox(&ctx, request);
        while (reader->Read(&event)) {
        }
        status = reader->Finish();
        expected = grpc::StatusCode::NOT_FOUND;
        break;
      }
      case 10:
        raw(method("ListSandboxes"), "", true);
        return;  // cancelled: whichever of the two is first
      case 11:
        status = create("box", {});
        expected = grpc::StatusCode::ALREADY_EXISTS;
        break;
      case 12:  // refused late, by the transaction: the sandbox's actor was there already
        status = create(cat("new-", i), "missing");
        expected = grpc::StatusCode::FAILED_PRECONDITION;
        break;
      default: {
        CreateWorkspaceRequest request;
        CreateWorkspaceResponse response;
        request.set_name(cat("UPPER-", i));
        request.set_request_id("not-a-uuid");
        status = stub_->CreateWorkspace(&ctx, request, &response);
        expected = grpc::StatusCode::INVALID_ARGUMENT;
      }
    }
    ASSERT_EQ(status.error_code(), expected) << "kind " << i % 14 << ": " << status.error_message();
  }

  GatewayProcess gateway_;
  Stub stub_, stranger_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> generic_;
};

TEST_F(RefusedCalls, M1_TenThousandLeaveTheMemoryAsItWas) {
  for (int i = 0; i < kWarmUp; ++i) ASSERT_NO_FATAL_FAILURE(refuse(i));
  const auto before = private_kb(gateway_.pid());
  ASSERT_GT(before, 0);
  for (int i = 0; i < kCalls; ++i) ASSERT_NO_FATAL_FAILURE(refuse(i));
  const auto grown = private_kb(gateway_.pid()) - before;
  RecordProperty("grown_kib", static_cast<int>(grown));
  std::printf("M1: %lld KiB before, %lld KiB more after %d refused calls\n", static_cast<long long>(before), static_cast<long long>(grown),
              kCalls);
  EXPECT_LT(grown, kAllowedGrowthKb);
}

TEST_F(RefusedCalls, M1_AMessageAboveTheBoundIsRefusedAndFreed) {
  const std::string large((1U << 20) + 1, 'x');
  for (int i = 0; i < 20; ++i) EXPECT_EQ(raw(method("CreateProvider"), large).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto before = private_kb(gateway_.pid());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(raw(method("CreateProvider"), large).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LT(private_kb(gateway_.pid()) - before, 8192);
}

}  // namespace
}  // namespace openshell::gateway
