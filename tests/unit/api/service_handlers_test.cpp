// Services of sandboxes, by their handlers on a store in memory.
#include <gmock/gmock.h>

#include "api/service_endpoint.hpp"
#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "openshell.pb.h"
#include "storage/types.hpp"
#include "tests/unit/api/handler_call.hpp"

namespace openshell::api {
namespace {

using namespace openshell::v1;
using testing::HasSubstr;

class Services : public testing::Test {
 protected:
  Services() {
    EXPECT_TRUE(ensure_default_workspace(*store_).ok());
    add_service_handlers(router_, {store_.get(), [] { return ServiceAddress{"https", "openshell.localhost", 17670}; }});
    EXPECT_TRUE(store_
                    ->write_and_wait([](storage::Transaction& tx) {
                      storage::Object row;
                      row.type = storage::types::kSandbox;
                      row.id = "sandbox-id";
                      row.workspace = "default";
                      row.name = "box";
                      return tx.create(row).status();
                    })
                    .ok());
  }
  absl::StatusOr<ServiceEndpointResponse> expose(const std::string& service, std::uint32_t port, const std::string& sandbox = "box",
                                                 ServiceAuthorizationMode mode = SERVICE_AUTHORIZATION_MODE_UNSPECIFIED) {
    ExposeServiceRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.set_sandbox(sandbox);
    request.set_name(service);
    request.set_target_port(port);
    request.set_authorization_mode(mode);
    return call<ServiceEndpointResponse>(router_, "ExposeService", request);
  }
  absl::StatusOr<ServiceEndpointResponse> get(const std::string& service) {
    GetServiceRequest request;
    request.mutable_workspace_scope()->set_workspace("default");
    request.set_sandbox("box");
    request.set_name(service);
    return call<ServiceEndpointResponse>(router_, "GetService", request);
  }
  std::unique_ptr<storage::Store> store_ = *storage::open_store("sqlite::memory:");
  Router router_;
};

TEST_F(Services, AreExposedWithAnAddress) {
  auto plain = expose("", 8080);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->url(), "https://default--box.openshell.localhost:17670/");
  EXPECT_EQ(plain->endpoint().sandbox_id(), "sandbox-id");
  EXPECT_EQ(plain->endpoint().authorization_mode(), SERVICE_AUTHORIZATION_MODE_STRIP);
  EXPECT_TRUE(plain->endpoint().domain());
  auto named = expose("web", 3000, "box", SERVICE_AUTHORIZATION_MODE_BEARER_PASSTHROUGH);
  EXPECT_EQ(named->url(), "https://default--box--web.openshell.localhost:17670/");
  EXPECT_EQ(get("web")->endpoint().target_port(), 3000U);
  auto again = expose("web", 3001);
  EXPECT_EQ(again->endpoint().metadata().id(), named->endpoint().metadata().id());
  EXPECT_EQ(again->endpoint().metadata().resource_version(), 2U);
  EXPECT_EQ(get("web")->endpoint().target_port(), 3001U);
  EXPECT_EQ(get("nope").status(), absl::NotFoundError("service endpoint not found"));
}

TEST_F(Services, HaveNamesAndPortsThatCanBeRouted) {
  EXPECT_THAT(expose("", 0).status().ToString(), HasSubstr("target_port must be in 1..=65535"));
  EXPECT_THAT(expose("", 65536).status().ToString(), HasSubstr("target_port must be in 1..=65535"));
  EXPECT_TRUE(expose("", 65535).ok());
  EXPECT_TRUE(expose(std::string(19, 'a'), 1).ok());
  EXPECT_THAT(expose(std::string(20, 'a'), 1).status().ToString(), HasSubstr("must be at most 19 characters for sandbox service routing"));
  EXPECT_THAT(expose("a--b", 1).status().ToString(), HasSubstr("must not contain '--'"));
  EXPECT_THAT(expose("A", 1).status().ToString(), HasSubstr("must be a lowercase DNS label"));
  EXPECT_THAT(expose("x", 1, "").status().ToString(), HasSubstr("sandbox is required"));
  EXPECT_EQ(expose("x", 1, "other").status(), absl::NotFoundError("sandbox not found"));
  EXPECT_TRUE(absl::IsInvalidArgument(expose("x", 1, "box", static_cast<ServiceAuthorizationMode>(9)).status()));
}

TEST_F(Services, AreListedInPagesAndDeleted) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(expose("s" + std::to_string(i), 80).ok());
  ListServicesRequest request;
  request.mutable_workspace_scope()->set_workspace("default");
  request.set_sandbox("box");
  request.set_page_size(2);
  int seen = 0;
  do {
    auto page = call<ListServicesResponse>(router_, "ListServices", request);
    ASSERT_TRUE(page.ok()) << page.status();
    seen += page->services_size();
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(seen, 5);
  request.mutable_workspace_scope()->mutable_all_workspaces();
  EXPECT_THAT(call<ListServicesResponse>(router_, "ListServices", request).status().ToString(),
              HasSubstr("sandbox filter is not supported with all_workspaces"));
  DeleteServiceRequest gone;
  gone.mutable_workspace_scope()->set_workspace("default");
  gone.set_sandbox("box");
  gone.set_name("s1");
  EXPECT_EQ(call<DeleteServiceResponse>(router_, "DeleteService", gone)->outcome(), DELETION_OUTCOME_COMPLETED);
  EXPECT_EQ(call<DeleteServiceResponse>(router_, "DeleteService", gone).status(), absl::NotFoundError("service endpoint not found"));
  gone.set_allow_missing(true);
  EXPECT_EQ(call<DeleteServiceResponse>(router_, "DeleteService", gone)->outcome(), DELETION_OUTCOME_ALREADY_ABSENT);
}

TEST(ServiceExposures, OfANewSandboxAreCheckedTogether) {
  CreateSandboxRequest request;
  for (const char* name : {"", "web"}) {
    auto& one = *request.add_service_exposures();
    one.set_service(name);
    one.set_target_port(80);
  }
  EXPECT_TRUE(check_exposures(request).ok());
  *request.add_service_exposures() = request.service_exposures(1);
  EXPECT_THAT(check_exposures(request).ToString(), HasSubstr("names service 'web' twice"));
  request.mutable_service_exposures(2)->set_service("x");
  request.mutable_service_exposures(2)->set_target_port(0);
  EXPECT_TRUE(absl::IsInvalidArgument(check_exposures(request)));
  CreateSandboxRequest many;
  for (int i = 0; i < kMaxServiceExposures; ++i) {
    many.add_service_exposures()->set_service("s" + std::to_string(i));
    many.mutable_service_exposures(i)->set_target_port(1);
  }
  EXPECT_TRUE(check_exposures(many).ok());
  many.add_service_exposures()->set_target_port(1);
  EXPECT_TRUE(absl::IsInvalidArgument(check_exposures(many)));
}

TEST(ServiceAddresses, LeaveOutTheSchemesOwnPort) {
  EXPECT_EQ((ServiceAddress{"https", "d.example", 443}.url("w", "s", "")), "https://w--s.d.example/");
  EXPECT_EQ((ServiceAddress{"http", "d.example", 80}.url("w", "s", "x")), "http://w--s--x.d.example/");
  EXPECT_EQ((ServiceAddress{"http", "d.example", 443}.url("w", "s", "x")), "http://w--s--x.d.example:443/");
  EXPECT_EQ((ServiceAddress{"https", "", 443}.url("w", "s", "")), "");
}

}  // namespace
}  // namespace openshell::api
