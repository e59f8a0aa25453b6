#include "api/call_context.hpp"

#include <algorithm>

#include "observability/text.hpp"

namespace openshell::api {
namespace {

/// A value between single quotes of a POSIX shell, for commands that an error message suggests.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\"'\"'";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string ask_for_role(std::string_view workspace, std::string_view subject, std::string_view role) {
  return cat("; ask a platform admin to run: openshell workspace member add --workspace ", shell_quoted(workspace), " --subject ",
             shell_quoted(subject), " --role ", role);
}

absl::Status anonymous() { return absl::UnauthenticatedError("authentication required"); }

}  // namespace

std::string_view identity_provider(Identity::Source source) {
  switch (source) {
    case Identity::Source::kMtls:
      return "mtls";
    case Identity::Source::kOidc:
      return "oidc";
    case Identity::Source::kLocalDev:
      return "local_dev";
  }
  return "local_dev";
}

const Identity* CallContext::identity() const {
  if (const auto* user = std::get_if<User>(&principal)) return &user->identity;
  if (const auto* op = std::get_if<Operator>(&principal)) return &op->identity;
  return nullptr;
}

bool CallContext::platform_admin() const {
  if (std::holds_alternative<Operator>(principal)) return true;
  const auto* user = std::get_if<User>(&principal);
  if (user == nullptr) return false;
  if (!rbac || admin_role.empty()) return true;
  const auto& roles = user->identity.roles;
  return std::find(roles.begin(), roles.end(), admin_role) != roles.end();
}

std::string CallContext::hint(const std::string& name) const {
  const auto found = hints.find(name);
  return found == hints.end() ? std::string{} : found->second;
}

std::string CallContext::actor() const {
  if (const auto* who = identity()) return who->subject;
  if (const auto* caller = sandbox()) return cat("sandbox:", caller->id.str());
  return "anonymous";
}

absl::Status require_platform_admin(const CallContext& ctx) {
  if (ctx.platform_admin()) return absl::OkStatus();
  if (ctx.sandbox() != nullptr) return absl::PermissionDeniedError("sandbox principals cannot perform cross-workspace operations");
  if (ctx.identity() == nullptr) return anonymous();
  return absl::PermissionDeniedError("platform admin role required for cross-workspace operations");
}

absl::Status require_same_sandbox(const CallContext& ctx, const SandboxId& id) {
  if (const auto* caller = ctx.sandbox()) {
    if (caller->id == id) return absl::OkStatus();
    return absl::PermissionDeniedError("cross-sandbox access denied: principal does not own this sandbox");
  }
  if (ctx.identity() != nullptr) return absl::OkStatus();
  return absl::UnauthenticatedError("sandbox-scoped methods require an authenticated caller");
}

absl::Status require_sandbox(const CallContext& ctx, const SandboxId& id) {
  if (ctx.sandbox() != nullptr) return require_same_sandbox(ctx, id);
  if (ctx.identity() != nullptr) return absl::PermissionDeniedError("supervisor RPCs require a sandbox principal");
  return absl::UnauthenticatedError("supervisor RPCs require an authenticated sandbox principal");
}

absl::Status authorize_workspace(const CallContext& ctx, std::string_view workspace, WorkspaceRole minimum,
                                 std::optional<WorkspaceRole> membership) {
  if (ctx.platform_admin() || ctx.sandbox() != nullptr) return absl::OkStatus();
  const Identity* who = ctx.identity();
  if (who == nullptr) return anonymous();
  const std::string_view role = minimum == WorkspaceRole::kAdmin ? "admin" : "user";
  if (!membership)
    return absl::PermissionDeniedError(cat("not a member of workspace '", workspace, "'", ask_for_role(workspace, who->subject, "user")));
  if (minimum == WorkspaceRole::kAdmin && *membership != WorkspaceRole::kAdmin) {
    return absl::PermissionDeniedError(
        cat("workspace role '", role, "' required in workspace '", workspace, "'", ask_for_role(workspace, who->subject, role)));
  }
  return absl::OkStatus();
}

}  // namespace openshell::api
