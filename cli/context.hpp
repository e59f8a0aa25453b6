// What every command gets: the global flags, and on demand the registry, the target and the connection.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/document.hpp"
#include "cli/gateway_client.hpp"
#include "cli/registration.hpp"

namespace openshell::datamodel::v1 {
class WorkspaceSelector;
}

namespace openshell::cli {

struct GlobalFlags {
  std::string gateway;   ///< --gateway or OPENSHELL_GATEWAY
  std::string endpoint;  ///< --gateway-endpoint
  bool insecure = false;
  std::string workspace = "default";
  std::string color = "auto";
  int verbosity = 0;
  std::optional<std::vector<std::string>> trailing;  ///< the words after `--`: the command of `sandbox exec` and `sandbox create`
};

class Context {
 public:
  explicit Context(const GlobalFlags& flags) : flags_{flags} {}

  [[nodiscard]] const GlobalFlags& flags() const { return flags_; }
  absl::StatusOr<Registry> registry() const { return Registry::from_environment(); }

  /// The gateway that this command addresses, by flag, environment, active file. Without the bearer, which may have to be fetched.
  absl::StatusOr<Target> target() const;
  /// The token for `target`, where its gateway wants one (renewed where it is about to end). FAILED_PRECONDITION says what to run.
  absl::StatusOr<Secret> bearer(const Target& target) const;
  /// Connected on first use.
  absl::StatusOr<GatewayClient*> client();

  /// `workspace_scope` of a request: the one workspace, or all of them.
  template <class Request>
  Request scoped(bool all_workspaces = false) const {
    Request request;
    fill(request.mutable_workspace_scope(), all_workspaces);
    return request;
  }

  /// The name given, else the sandbox last used with this gateway and workspace (said on stderr).
  absl::StatusOr<std::string> sandbox_or_last(const std::string& given) const;
  void remember(const std::string& sandbox) const;
  void forget(const std::string& sandbox) const;

 private:
  void fill(datamodel::v1::WorkspaceSelector* scope, bool all) const;

  const GlobalFlags& flags_;
  std::optional<GatewayClient> client_;
};

}  // namespace openshell::cli
