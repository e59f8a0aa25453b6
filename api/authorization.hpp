// What each method demands of its caller, read once from the `authorization` options of the compiled descriptors. There is no second table:
// a method whose option is missing or contradicts itself stops the program before any socket is bound.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/call_context.hpp"

namespace google::protobuf {
class ServiceDescriptor;
}

namespace openshell::api {

enum class AuthMode { kUnauthenticated, kSandbox, kBearer, kDual, kPeer, kOperator };

struct MethodRule {
  AuthMode mode = AuthMode::kBearer;
  std::optional<WorkspaceRole> workspace_role;  ///< checked by the handler, which knows the workspace
  bool platform_admin = false;                  ///< global_role
  std::string scope;                            ///< empty: none
};

/// One method's option as it is written; separate so that the rules can be tried with options that no descriptor has.
struct WrittenRule {
  std::string auth_mode;
  std::string workspace_role;
  std::string global_role;
  std::string scope;
};
/// INVALID_ARGUMENT `method <path>: <what is wrong>`.
absl::StatusOr<MethodRule> check_rule(std::string_view path, const WrittenRule& written);

/// Names of roles and where scopes stand; only with OIDC. Empty: no role or scope is asked for, every user is platform admin.
struct RolePolicy {
  bool configured = false;
  std::string admin_role = "openshell-admin";
  std::string user_role = "openshell-user";
  bool scopes = false;
};

class AuthorizationTable {
 public:
  /// The table of `openshell.v1.OpenShell`. FAILED_PRECONDITION `invalid gRPC authorization metadata: ...`.
  static absl::StatusOr<AuthorizationTable> build();
  static absl::StatusOr<AuthorizationTable> build(const google::protobuf::ServiceDescriptor& service);

  /// Null: the service has no such method.
  [[nodiscard]] const MethodRule* find(std::string_view method) const;
  [[nodiscard]] const std::map<std::string, MethodRule, std::less<>>& rules() const { return rules_; }

 private:
  std::map<std::string, MethodRule, std::less<>> rules_;
};

/// PERMISSION_DENIED `scope '<required>' required` where the caller has neither this scope nor the one for all. Empty: none is asked for.
absl::Status check_scope(std::string_view required, const Identity& who);
/// May this principal call a method with this rule (null: unknown method)? `bearer_present`: the request carried an authorization header.
/// Texts and codes are those the interface promises.
absl::Status authorize(const MethodRule* rule, const Principal& principal, const RolePolicy& roles, bool bearer_present);

}  // namespace openshell::api
