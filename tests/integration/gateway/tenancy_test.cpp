// Workspaces, profiles, provider updates and services against the real program: what is stored is there after a restart.
#include <gmock/gmock.h>

#include "storage/store.hpp"
#include "tests/integration/gateway/gateway_stub.hpp"
#include "tests/integration/gateway/seeded_sandbox.hpp"

namespace openshell::gateway {
namespace {

using namespace openshell::v1;

class Tenancy : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(seed_box(gateway_)) << gateway_.log();
    start();
  }
  void start() {
    ASSERT_TRUE(gateway_.start()) << gateway_.log();
    stub_ = connect(gateway_, own_tls(gateway_));
  }
  template <class Request, class Response>
  Response call(grpc::Status (OpenShell::Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request,
                grpc::StatusCode expected = grpc::StatusCode::OK) {
    grpc::ClientContext ctx;
    prepare(ctx, {});
    Response response;
    last_ = ((*stub_).*method)(&ctx, request, &response);
    EXPECT_EQ(last_.error_code(), expected) << last_.error_message();
    return response;
  }
  template <class Request>
  static Request in_default() {
    Request request;
    request.mutable_workspace_scope()->set_workspace("default");
    return request;
  }
  GatewayProcess gateway_;
  Stub stub_;
  grpc::Status last_;
};

TEST_F(Tenancy, AWorkspaceSurvivesARestartAndIsDeletedOnceEmpty) {
  CreateWorkspaceRequest create;
  create.set_name("lab");
  call(&OpenShell::Stub::CreateWorkspace, create);
  auto provider = in_default<CreateProviderRequest>();
  provider.mutable_workspace_scope()->set_workspace("lab");
  provider.mutable_provider()->mutable_metadata()->set_name("p");
  provider.mutable_provider()->set_type("generic");
  (*provider.mutable_provider()->mutable_credentials())["TOKEN"] = "x";
  call(&OpenShell::Stub::CreateProvider, provider);
  gateway_.terminate(SIGKILL);
  start();
  DeleteWorkspaceRequest remove;
  remove.set_name("lab");
  call(&OpenShell::Stub::DeleteWorkspace, remove, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(last_.error_message(), "workspace 'lab' still contains resources: provider");
  provider.mutable_provider()->mutable_metadata()->set_name("q");
  call(&OpenShell::Stub::CreateProvider, provider, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(last_.error_message(), "workspace 'lab' is being deleted");
  auto gone = in_default<DeleteProviderRequest>();
  gone.mutable_workspace_scope()->set_workspace("lab");
  gone.set_name("p");
  call(&OpenShell::Stub::DeleteProvider, gone);
  EXPECT_EQ(call(&OpenShell::Stub::DeleteWorkspace, remove).outcome(), DELETION_OUTCOME_COMPLETED);
}

TEST_F(Tenancy, AnAttachedProviderIsListedUpdatedAndItsSandboxGetsAReceipt) {
  ImportProviderProfilesRequest import;
  auto& profile = *import.add_profiles()->mutable_profile();
  profile.set_id("crm");
  profile.set_display_name("CRM");
  profile.add_credentials()->set_name("token");
  profile.mutable_credentials(0)->add_env_vars("CRM_TOKEN");
  auto& endpoint = *profile.add_endpoints();
  endpoint.set_host("crm.example.com");
  endpoint.set_port(443);
  endpoint.set_protocol("rest");
  endpoint.set_access(openshell::sandbox::v1::NETWORK_ACCESS_PRESET_READ_ONLY);
  ASSERT_TRUE(call(&OpenShell::Stub::ImportProviderProfiles, import).imported());
  auto create = in_default<CreateProviderRequest>();
  create.mutable_provider()->mutable_metadata()->set_name("p");
  create.mutable_provider()->set_type("crm");
  (*create.mutable_provider()->mutable_credentials())["CRM_TOKEN"] = "one";
  call(&OpenShell::Stub::CreateProvider, create);
  auto attach = in_default<AttachSandboxProviderRequest>();
  attach.set_sandbox("box");
  attach.set_provider("p");
  EXPECT_TRUE(call(&OpenShell::Stub::AttachSandboxProvider, attach).attached());
  auto list = in_default<ListSandboxProvidersRequest>();
  list.set_sandbox("box");
  const auto listed = call(&OpenShell::Stub::ListSandboxProviders, list);
  ASSERT_EQ(listed.providers_size(), 1);
  EXPECT_EQ(listed.providers(0).credentials().at("CRM_TOKEN"), "REDACTED");
  openshell::sandbox::v1::GetSandboxConfigRequest ask;
  ask.mutable_workspace_scope()->set_workspace("default");
  ask.set_name("box");
  auto update = in_default<UpdateProviderRequest>();
  update.mutable_provider()->mutable_metadata()->set_name("p");
  (*update.mutable_provider()->mutable_credentials())["CRM_TOKEN"] = "two";
  const auto before = call(&OpenShell::Stub::GetSandboxConfig, ask).provider_env_revision();
  const auto updated = call(&OpenShell::Stub::UpdateProvider, update);
  ASSERT_EQ(updated.target_receipts_size(), 1);
  EXPECT_EQ(updated.target_receipts(0).mutation_id(), updated.mutation_id());
  EXPECT_EQ(updated.target_receipts(0).kind(), PROVIDER_MUTATION_KIND_UPDATE);
  EXPECT_EQ(updated.target_receipts(0).desired().provider_resource_version(), 2U);
  const auto after = call(&OpenShell::Stub::GetSandboxConfig, ask).provider_env_revision();
  EXPECT_NE(after, before);
  EXPECT_EQ(updated.target_receipts(0).desired().provider_env_revision(), after);
  auto status = in_default<GetSandboxProviderStatusRequest>();
  status.set_sandbox("box");
  status.set_receipt_id(updated.target_receipts(0).receipt_id());
  EXPECT_EQ(call(&OpenShell::Stub::GetSandboxProviderStatus, status).status().receipt().receipt_id(), status.receipt_id());
  DeleteProviderProfileRequest gone;
  gone.set_id("crm");
  call(&OpenShell::Stub::DeleteProviderProfile, gone, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(last_.error_message(), "provider profile 'crm' is in use by providers: default/p");
}

TEST_F(Tenancy, ServicesGoWithTheirSandbox) {
  auto expose = in_default<ExposeServiceRequest>();
  expose.set_sandbox("box");
  expose.set_target_port(8080);
  const auto exposed = call(&OpenShell::Stub::ExposeService, expose);
  EXPECT_EQ(exposed.url(), cat("https://default--box.openshell.localhost:", gateway_.port(), "/"));
  auto gone = in_default<DeleteSandboxRequest>();
  gone.set_name("box");
  call(&OpenShell::Stub::DeleteSandbox, gone);
  EXPECT_EQ(call(&OpenShell::Stub::ListServices, in_default<ListServicesRequest>()).services_size(), 0);
  auto get = in_default<GetSandboxRequest>();
  get.set_name("box");
  call(&OpenShell::Stub::GetSandbox, get, grpc::StatusCode::NOT_FOUND);
}

TEST_F(Tenancy, WhoWasAnsweredSeesWhatHeDid) {
  auto create = in_default<CreateProviderRequest>();
  create.mutable_provider()->mutable_metadata()->set_name("p");
  create.mutable_provider()->set_type("generic");
  (*create.mutable_provider()->mutable_credentials())["TOKEN"] = "x";
  call(&OpenShell::Stub::CreateProvider, create);
  auto attach = in_default<AttachSandboxProviderRequest>();
  attach.set_sandbox("box");
  attach.set_provider("p");
  auto detach = in_default<DetachSandboxProviderRequest>();
  detach.set_sandbox("box");
  detach.set_provider("p");
  auto get = in_default<GetSandboxRequest>();
  get.set_name("box");
  for (int i = 0; i < 50; ++i) {
    call(&OpenShell::Stub::AttachSandboxProvider, attach);
    ASSERT_EQ(call(&OpenShell::Stub::GetSandbox, get).sandbox().spec().providers_size(), 1) << i;
    call(&OpenShell::Stub::DetachSandboxProvider, detach);
    ASSERT_EQ(call(&OpenShell::Stub::GetSandbox, get).sandbox().spec().providers_size(), 0) << i;
  }
}

}  // namespace
}  // namespace openshell::gateway
