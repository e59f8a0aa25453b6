#include "api/authorization.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "openshell.pb.h"
#include "options.pb.h"

namespace openshell::api {
namespace {

const std::string kPath = "/openshell.v1.OpenShell/Some";

std::string error_of(const WrittenRule& written, const std::string& path = kPath) {
  return std::string{check_rule(path, written).status().message()};
}

TEST(AuthorizationRule, EveryContradictionIsNamed) {
  EXPECT_EQ(error_of({"magic", "", "", ""}), "method " + kPath + ": unknown auth_mode 'magic'");
  EXPECT_EQ(error_of({"bearer", "user", "platform_admin", "a:b"}),
            "method " + kPath + ": workspace_role and global_role are mutually exclusive");
  EXPECT_EQ(error_of({"bearer", "root", "", "a:b"}),
            "method " + kPath + ": unknown workspace_role 'root' (expected one of [\"user\", \"admin\"])");
  EXPECT_EQ(error_of({"bearer", "", "root", "a:b"}),
            "method " + kPath + ": unknown global_role 'root' (expected one of [\"platform_admin\"])");
  EXPECT_EQ(error_of({"sandbox", "user", "", ""}), "method " + kPath + ": Sandbox method must not declare role or scope");
  EXPECT_EQ(error_of({"operator", "", "", "a:b"}), "method " + kPath + ": Operator method must not declare role or scope");
  EXPECT_EQ(error_of({"bearer", "", "", ""}), "method " + kPath + ": bearer method declares no role and no scope");
  EXPECT_EQ(error_of({"dual", "user", "", ""}), "method " + kPath + ": bearer method declares no scope");
  EXPECT_EQ(error_of({"bearer", "", "", "a:b"}), "method " + kPath + ": scope-only bearer method must be listed in SCOPE_ONLY_METHODS");
  EXPECT_TRUE(check_rule("/openshell.v1.OpenShell/GetCurrentUser", {"bearer", "", "", ""}).ok());
  EXPECT_TRUE(check_rule("/openshell.v1.OpenShell/GetGatewayConfig", {"bearer", "", "", "config:read"}).ok());
}

TEST(AuthorizationTable, HasEveryMethodOfTheDescriptorAndNothingElse) {
  const auto table = AuthorizationTable::build();
  ASSERT_TRUE(table.ok()) << table.status();
  const auto* service = openshell::v1::HealthRequest::descriptor()->file()->FindServiceByName("OpenShell");
  EXPECT_EQ(table->rules().size(), static_cast<std::size_t>(service->method_count()));
  EXPECT_EQ(service->method_count(), 84);
  for (int i = 0; i < service->method_count(); ++i) {
    const auto& option = service->method(i)->options().GetExtension(openshell::options::v1::authorization);
    const MethodRule* rule = table->find(service->method(i)->name());
    ASSERT_NE(rule, nullptr) << service->method(i)->name();
    EXPECT_EQ(rule->scope, option.scope());
    EXPECT_EQ(rule->platform_admin, option.global_role() == "platform_admin");
    EXPECT_EQ(rule->workspace_role.has_value(), !option.workspace_role().empty());
  }
  EXPECT_EQ(table->find("NoSuchMethod"), nullptr);
}

Principal user(std::vector<std::string> roles = {}, std::vector<std::string> scopes = {}) {
  return User{{"anna", "Anna", std::move(roles), std::move(scopes), Identity::Source::kMtls}};
}
const RolePolicy kNoRoles;
const RolePolicy kRoles{true, "openshell-admin", "openshell-user", false};
const RolePolicy kScopes{true, "openshell-admin", "openshell-user", true};

TEST(Authorize, ModesByPrincipal) {
  const auto table = *AuthorizationTable::build();
  struct Row {
    const char* method;
    absl::StatusCode user, sandbox, op, anonymous;
  };
  using enum absl::StatusCode;
  for (const auto& row : {Row{"Health", kOk, kOk, kOk, kOk}, Row{"GetSandbox", kOk, kPermissionDenied, kOk, kUnauthenticated},
                          Row{"GetSandboxConfig", kOk, kOk, kOk, kUnauthenticated},
                          Row{"ReportPolicyStatus", kPermissionDenied, kOk, kPermissionDenied, kUnauthenticated},
                          Row{"PeerRelay", kPermissionDenied, kPermissionDenied, kPermissionDenied, kUnauthenticated},
                          Row{"GetProviderCredentials", kPermissionDenied, kUnauthenticated, kOk, kUnauthenticated}}) {
    const MethodRule* rule = table.find(row.method);
    EXPECT_EQ(authorize(rule, user(), kNoRoles, false).code(), row.user) << row.method;
    EXPECT_EQ(authorize(rule, SandboxCaller{}, kNoRoles, true).code(), row.sandbox) << row.method;
    EXPECT_EQ(authorize(rule, Operator{}, kNoRoles, false).code(), row.op) << row.method;
    EXPECT_EQ(authorize(rule, Anonymous{}, kNoRoles, false).code(), row.anonymous) << row.method;
  }
  EXPECT_EQ(authorize(table.find("GetProviderCredentials"), user(), kNoRoles, true).message(), "operator methods accept no bearer");
  EXPECT_EQ(authorize(table.find("GetSandbox"), SandboxCaller{}, kNoRoles, true).message(), "sandbox principals may not call this method");
  EXPECT_EQ(authorize(table.find("ConnectSupervisor"), user(), kNoRoles, false).message(), "this method requires a sandbox principal");
}

TEST(Authorize, RolesBeforeScopesAndAdminCoversUser) {
  const auto table = *AuthorizationTable::build();
  const auto* get = table.find("GetSandbox");
  const auto* info = table.find("GetGatewayInfo");
  EXPECT_EQ(authorize(get, user(), kRoles, true).message(), "role 'openshell-user' required");
  EXPECT_TRUE(authorize(get, user({"openshell-user"}), kRoles, true).ok());
  EXPECT_TRUE(authorize(get, user({"openshell-admin"}), kRoles, true).ok());
  EXPECT_EQ(authorize(info, user({"openshell-user"}), kRoles, true).message(), "role 'openshell-admin' required");
  EXPECT_EQ(authorize(get, user({}, {"openshell:all"}), kScopes, true).message(), "role 'openshell-user' required");
  EXPECT_EQ(authorize(get, user({"openshell-user"}), kScopes, true).message(), "scope 'sandbox:read' required");
  EXPECT_TRUE(authorize(get, user({"openshell-user"}, {"sandbox:read"}), kScopes, true).ok());
  EXPECT_TRUE(authorize(table.find("GetCurrentUser"), user(), kScopes, true).ok());
  EXPECT_EQ(authorize(nullptr, user({"openshell-user"}), kScopes, true).message(), "scope 'openshell:all' required");
}

}  // namespace
}  // namespace openshell::api
