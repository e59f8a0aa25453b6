// Who calls, on which method, from where and until when. Made by the service shell once a call is authenticated and authorised; handlers
// only read it.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "messages/values.hpp"

namespace openshell::api {

/// Facts about a person or a program with rights of a person.
struct Identity {
  enum class Source { kMtls, kOidc, kLocalDev };
  std::string subject;
  std::string display_name;  ///< empty: none
  std::vector<std::string> roles;
  std::vector<std::string> scopes;
  Source source = Source::kLocalDev;
};
std::string_view identity_provider(Identity::Source source);  ///< "mtls", "oidc", "local_dev", as GetCurrentUser says it

struct User {
  Identity identity;
};
/// A supervisor, by the token of its launch (SessionToken), or, on IssueSandboxToken only, what the compute driver vouched for.
struct SandboxCaller {
  SandboxId id;
  bool by_driver = false;
  GenerationId generation;       ///< SessionToken only
  std::uint64_t auth_epoch = 0;  ///< SessionToken only
  std::string token_id;          ///< `jti`, SessionToken only
  std::string driver_name;       ///< by_driver only
  std::string runtime_identity;  ///< by_driver only
};
struct Operator {
  Identity identity;
  std::string certificate_sha256;  ///< lower-case hex
};
struct Anonymous {};  ///< on unauthenticated methods only

using Principal = std::variant<Anonymous, User, SandboxCaller, Operator>;

enum class WorkspaceRole { kUser, kAdmin };

/// Lives as long as the call; thread-safe because nothing in it changes.
struct CallContext {
  std::string method;  ///< "GetSandbox"
  Principal principal;
  std::string peer;        ///< caller's address for logs: "127.0.0.1:40312", "unix"
  std::string request_id;  ///< x-request-id of the caller, else a new UUID
  std::chrono::system_clock::time_point deadline = std::chrono::system_clock::time_point::max();
  std::map<std::string, std::string> hints;  ///< what the caller announced: request metadata that begins with `openshell-`, first values
  bool rbac = false;                         ///< roles are configured (OIDC); without them every user is platform admin
  std::string admin_role;

  [[nodiscard]] const SandboxCaller* sandbox() const { return std::get_if<SandboxCaller>(&principal); }
  [[nodiscard]] const Identity* identity() const;  ///< of a User or an Operator
  /// The hint of that name, or "".
  [[nodiscard]] std::string hint(const std::string& name) const;
  /// User or operator who may do everything in every workspace. False for sandboxes.
  [[nodiscard]] bool platform_admin() const;
  /// The one who did it, for audit records and `created_by`: subject, or "sandbox:<id>".
  [[nodiscard]] std::string actor() const;
};

/// Checks of auth 7.4 and 7.5 that handlers repeat. All PERMISSION_DENIED, with the texts that the interface promises.
absl::Status require_platform_admin(const CallContext& ctx);
/// Sandbox callers: the id must be their own. Users and operators pass (their right was checked by the method's option).
absl::Status require_same_sandbox(const CallContext& ctx, const SandboxId& id);
/// For supervisor-only methods.
absl::Status require_sandbox(const CallContext& ctx, const SandboxId& id);
/// Users need a role in the workspace; without roles configured every user has it. Sandbox callers pass: the same-sandbox check applies to
/// them. With RBAC, membership is read from the store by the caller and passed as `membership` (nullopt: no member record).
absl::Status authorize_workspace(const CallContext& ctx, std::string_view workspace, WorkspaceRole minimum,
                                 std::optional<WorkspaceRole> membership = std::nullopt);

}  // namespace openshell::api
