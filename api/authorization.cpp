#include "api/authorization.hpp"

#include <algorithm>
#include <array>

#include "observability/text.hpp"
#include "openshell.pb.h"
#include "options.pb.h"

namespace openshell::api {
namespace {

// Bearer methods that need neither role nor scope, and those with a scope only. Anything else with a hole in its option is a mistake.
constexpr std::array kNoRoleNoScope{"GetCurrentUser"};
constexpr std::array kScopeOnly{"GetGatewayConfig"};

struct ModeName {
  std::string_view name;
  std::string_view title;
  AuthMode mode;
};
constexpr std::array kModes{
    ModeName{"unauthenticated", "Unauthenticated", AuthMode::kUnauthenticated},
    ModeName{"sandbox", "Sandbox", AuthMode::kSandbox},
    ModeName{"bearer", "Bearer", AuthMode::kBearer},
    ModeName{"dual", "Dual", AuthMode::kDual},
    ModeName{"peer", "Peer", AuthMode::kPeer},
    ModeName{"operator", "Operator", AuthMode::kOperator},
};

template <std::size_t N>
bool lists(const std::array<const char*, N>& names, std::string_view path) {
  const std::string_view method = path.substr(path.rfind('/') + 1);
  return std::find(names.begin(), names.end(), method) != names.end();
}

absl::Status wrong(std::string_view path, std::string_view what) { return absl::InvalidArgumentError(cat("method ", path, ": ", what)); }

absl::Status check_completeness(std::string_view path, const WrittenRule& written, bool user_callable, std::string_view title) {
  const bool role = !written.workspace_role.empty() || !written.global_role.empty();
  const bool scope = !written.scope.empty();
  if (!user_callable) return role || scope ? wrong(path, cat(title, " method must not declare role or scope")) : absl::OkStatus();
  if (!role && !scope && !lists(kNoRoleNoScope, path)) return wrong(path, "bearer method declares no role and no scope");
  if (role && !scope) return wrong(path, "bearer method declares no scope");
  if (scope && !role && !lists(kScopeOnly, path)) return wrong(path, "scope-only bearer method must be listed in SCOPE_ONLY_METHODS");
  return absl::OkStatus();
}

constexpr std::string_view kAllScopes = "openshell:all";  // what a method without a rule asks for, and what stands for each other scope

bool holds(const std::vector<std::string>& all, std::string_view one) { return std::find(all.begin(), all.end(), one) != all.end(); }

absl::Status check_role(const MethodRule* rule, const Identity& who, const RolePolicy& roles) {
  const bool none = rule != nullptr && !rule->platform_admin && !rule->workspace_role;
  if (none) return absl::OkStatus();
  const std::string& required = rule != nullptr && rule->platform_admin ? roles.admin_role : roles.user_role;
  if (required.empty() || holds(who.roles, required)) return absl::OkStatus();
  if (required == roles.user_role && !roles.admin_role.empty() && holds(who.roles, roles.admin_role)) return absl::OkStatus();
  return absl::PermissionDeniedError(cat("role '", required, "' required"));
}

absl::Status check_user(const MethodRule* rule, const Identity& who, const RolePolicy& roles, bool bearer_present) {
  const AuthMode mode = rule == nullptr ? AuthMode::kBearer : rule->mode;
  switch (mode) {
    case AuthMode::kOperator:
      return bearer_present ? absl::UnauthenticatedError("operator methods accept no bearer")
                            : absl::PermissionDeniedError("operator principal is required");
    case AuthMode::kPeer:
      return absl::PermissionDeniedError("gateway peer principal is required");
    case AuthMode::kSandbox:
    case AuthMode::kUnauthenticated:
      return absl::PermissionDeniedError("this method requires a sandbox principal");
    case AuthMode::kBearer:
    case AuthMode::kDual:
      break;
  }
  if (!roles.configured) return absl::OkStatus();
  if (auto status = check_role(rule, who, roles); !status.ok()) return status;
  return roles.scopes ? check_scope(rule == nullptr ? kAllScopes : std::string_view{rule->scope}, who) : absl::OkStatus();
}

}  // namespace

absl::Status check_scope(std::string_view required, const Identity& who) {
  if (required.empty() || holds(who.scopes, kAllScopes) || holds(who.scopes, required)) return absl::OkStatus();
  return absl::PermissionDeniedError(cat("scope '", required, "' required"));
}

absl::StatusOr<MethodRule> check_rule(std::string_view path, const WrittenRule& written) {
  const auto mode = std::find_if(kModes.begin(), kModes.end(), [&](const ModeName& known) { return known.name == written.auth_mode; });
  if (mode == kModes.end()) return wrong(path, cat("unknown auth_mode '", written.auth_mode, "'"));
  if (!written.workspace_role.empty() && !written.global_role.empty())
    return wrong(path, "workspace_role and global_role are mutually exclusive");
  MethodRule rule;
  rule.mode = mode->mode;
  if (written.workspace_role == "user") rule.workspace_role = WorkspaceRole::kUser;
  if (written.workspace_role == "admin") rule.workspace_role = WorkspaceRole::kAdmin;
  if (!written.workspace_role.empty() && !rule.workspace_role) {
    return wrong(path, cat("unknown workspace_role '", written.workspace_role, "' (expected one of [\"user\", \"admin\"])"));
  }
  rule.platform_admin = written.global_role == "platform_admin";
  if (!written.global_role.empty() && !rule.platform_admin) {
    return wrong(path, cat("unknown global_role '", written.global_role, "' (expected one of [\"platform_admin\"])"));
  }
  rule.scope = written.scope;
  const bool user_callable = rule.mode == AuthMode::kBearer || rule.mode == AuthMode::kDual;
  if (auto status = check_completeness(path, written, user_callable, mode->title); !status.ok()) return status;
  return rule;
}

absl::StatusOr<AuthorizationTable> AuthorizationTable::build() {
  const auto* service = openshell::v1::HealthRequest::descriptor()->file()->FindServiceByName("OpenShell");
  if (service == nullptr)
    return absl::FailedPreconditionError("invalid gRPC authorization metadata: service openshell.v1.OpenShell is not compiled in");
  return build(*service);
}

absl::StatusOr<AuthorizationTable> AuthorizationTable::build(const google::protobuf::ServiceDescriptor& service) {
  AuthorizationTable table;
  for (int i = 0; i < service.method_count(); ++i) {
    const auto* method = service.method(i);
    const std::string path = cat("/", service.full_name(), "/", method->name());
    if (!method->options().HasExtension(openshell::options::v1::authorization)) {
      return absl::FailedPreconditionError(cat("invalid gRPC authorization metadata: method ", path, " missing (authorization) option"));
    }
    const auto& option = method->options().GetExtension(openshell::options::v1::authorization);
    auto rule = check_rule(path, {option.auth_mode(), option.workspace_role(), option.global_role(), option.scope()});
    if (!rule.ok()) return absl::FailedPreconditionError(cat("invalid gRPC authorization metadata: ", rule.status().message()));
    table.rules_.emplace(method->name(), *std::move(rule));
  }
  return table;
}

const MethodRule* AuthorizationTable::find(std::string_view method) const {
  const auto found = rules_.find(method);
  return found == rules_.end() ? nullptr : &found->second;
}

absl::Status authorize(const MethodRule* rule, const Principal& principal, const RolePolicy& roles, bool bearer_present) {
  if (rule != nullptr && rule->mode == AuthMode::kUnauthenticated) return absl::OkStatus();
  if (const auto* user = std::get_if<User>(&principal)) return check_user(rule, user->identity, roles, bearer_present);
  if (std::holds_alternative<SandboxCaller>(principal)) {
    if (rule != nullptr && rule->mode == AuthMode::kOperator) return absl::UnauthenticatedError("operator methods accept no bearer");
    if (rule != nullptr && rule->mode == AuthMode::kPeer) return absl::PermissionDeniedError("gateway peer principal is required");
    if (rule != nullptr && (rule->mode == AuthMode::kSandbox || rule->mode == AuthMode::kDual)) return absl::OkStatus();
    return absl::PermissionDeniedError("sandbox principals may not call this method");
  }
  if (std::holds_alternative<Operator>(principal)) {
    if (rule == nullptr) return absl::OkStatus();
    switch (rule->mode) {
      case AuthMode::kOperator:
      case AuthMode::kBearer:
      case AuthMode::kDual:
        return absl::OkStatus();
      case AuthMode::kPeer:
        return absl::PermissionDeniedError("gateway peer principal is required");
      default:
        return absl::PermissionDeniedError("this method requires a sandbox principal");
    }
  }
  return absl::UnauthenticatedError("anonymous callers may not call authenticated methods");
}

}  // namespace openshell::api
