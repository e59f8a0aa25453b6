#include "api/call_context.hpp"

#include <gtest/gtest.h>

namespace openshell::api {
namespace {

CallContext context(Principal principal, bool rbac = false) {
  CallContext ctx;
  ctx.principal = std::move(principal);
  ctx.rbac = rbac;
  ctx.admin_role = "openshell-admin";
  return ctx;
}
CallContext anna(bool rbac, std::vector<std::string> roles = {}) {
  return context(User{{"anna's", "", std::move(roles), {}, Identity::Source::kOidc}}, rbac);
}
CallContext sandbox(const char* id) {
  SandboxCaller caller;
  caller.id = SandboxId{id};
  return context(caller);
}

TEST(CallContext, WithoutRolesEveryUserIsPlatformAdmin) {
  EXPECT_TRUE(anna(false).platform_admin());
  EXPECT_FALSE(anna(true).platform_admin());
  EXPECT_TRUE(anna(true, {"openshell-admin"}).platform_admin());
  EXPECT_TRUE(context(Operator{}, true).platform_admin());
  EXPECT_FALSE(sandbox("a").platform_admin());
  EXPECT_FALSE(context(Anonymous{}).platform_admin());
}

TEST(CallContext, WorkspaceTextsSuggestTheCommandQuotedForAShell) {
  EXPECT_EQ(authorize_workspace(anna(true), "lab", WorkspaceRole::kUser).message(),
            "not a member of workspace 'lab'; ask a platform admin to run: openshell workspace member add --workspace 'lab' --subject "
            "'anna'\"'\"'s' --role user");
  EXPECT_EQ(authorize_workspace(anna(true), "lab", WorkspaceRole::kAdmin, WorkspaceRole::kUser).message(),
            "workspace role 'admin' required in workspace 'lab'; ask a platform admin to run: openshell workspace member add --workspace "
            "'lab' --subject 'anna'\"'\"'s' --role admin");
  EXPECT_TRUE(authorize_workspace(anna(true), "lab", WorkspaceRole::kUser, WorkspaceRole::kAdmin).ok());
  EXPECT_TRUE(authorize_workspace(anna(false), "lab", WorkspaceRole::kAdmin).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(authorize_workspace(context(Anonymous{}), "lab", WorkspaceRole::kUser)));
}

TEST(CallContext, ASandboxReachesItselfOnly) {
  EXPECT_TRUE(require_same_sandbox(sandbox("a"), SandboxId{"a"}).ok());
  EXPECT_EQ(require_same_sandbox(sandbox("a"), SandboxId{"b"}).message(),
            "cross-sandbox access denied: principal does not own this sandbox");
  EXPECT_TRUE(require_same_sandbox(anna(true), SandboxId{"b"}).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(require_same_sandbox(context(Anonymous{}), SandboxId{"a"})));
  EXPECT_EQ(require_sandbox(anna(false), SandboxId{"a"}).message(), "supervisor RPCs require a sandbox principal");
  EXPECT_EQ(require_platform_admin(sandbox("a")).message(), "sandbox principals cannot perform cross-workspace operations");
  EXPECT_EQ(require_platform_admin(anna(true)).message(), "platform admin role required for cross-workspace operations");
}

}  // namespace
}  // namespace openshell::api
