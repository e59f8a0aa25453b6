// The gateways that this user knows: what the command line and the published Python package read and write below
// $XDG_CONFIG_HOME/openshell, and the read-only registrations of the system below it.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "messages/secret.hpp"

namespace openshell::cli {

/// metadata.json of one gateway. Keys that are not listed here are kept out of what we write and ignored when read.
struct Registration {
  std::string name;
  std::string endpoint;   ///< gateway_endpoint: `https://host:port` or `http://...`
  std::string auth_mode;  ///< empty or `mtls`, `plaintext`, `oidc`, `cloudflare_jwt`
  bool is_remote = false;
  std::string remote_host;
  std::string resolved_host;
  std::string oidc_issuer, oidc_client_id, oidc_audience, oidc_scopes;  ///< scopes separated by spaces; all empty: not given
  bool from_system = false;                                             ///< found below the system root, which is never written
  bool active = false;                                                  ///< set by list()
};

/// The client's PEM bundle of a gateway.
struct ClientBundle {
  std::filesystem::path ca, certificate, key;
};

class Registry {
 public:
  /// Roots from the environment. FAILED_PRECONDITION where neither XDG_CONFIG_HOME nor HOME is set.
  static absl::StatusOr<Registry> from_environment();
  Registry(std::filesystem::path user_root, std::filesystem::path system_root)
      : user_{std::move(user_root)}, system_{std::move(system_root)} {}

  /// INVALID_ARGUMENT unless `name` is one path component.
  static absl::Status check_name(const std::string& name);

  /// NOT_FOUND where nobody registered it. A user entry that cannot be read shadows the system's: an error, never a silent fallback.
  [[nodiscard]] absl::StatusOr<Registration> find(const std::string& name) const;
  [[nodiscard]] std::vector<Registration> list() const;  ///< by name, user entries shadow the system's
  [[nodiscard]] std::optional<std::string> active() const;
  [[nodiscard]] absl::Status save(const Registration& registration) const;  ///< as a user registration
  [[nodiscard]] absl::Status set_active(const std::string& name) const;
  /// Removes metadata and tokens; `mtls/` stays.
  [[nodiscard]] absl::Status remove(const std::string& name) const;

  [[nodiscard]] ClientBundle bundle(const std::string& name) const;
  /// Replaces `mtls/` as a whole or not at all; the three files must not be empty.
  [[nodiscard]] absl::Status import_bundle(const std::string& name, const ClientBundle& from) const;

  /// oidc_token.json, as it stands there. NOT_FOUND: none.
  [[nodiscard]] absl::StatusOr<Secret> read_token(const std::string& name) const;
  /// Mode 0600. Removes the mark of a logout.
  [[nodiscard]] absl::Status write_token(const std::string& name, const Secret& json) const;
  /// Removes the token and leaves a mark, so that the next login asks who it is. NOT_FOUND: there was none.
  [[nodiscard]] absl::Status forget_token(const std::string& name) const;

  /// The sandbox last used with this gateway and workspace.
  [[nodiscard]] std::optional<std::string> last_sandbox(const std::string& gateway, const std::string& workspace) const;
  void remember_sandbox(const std::string& gateway, const std::string& workspace, const std::string& sandbox) const;
  void forget_sandbox(const std::string& gateway, const std::string& workspace, const std::string& sandbox) const;

 private:
  [[nodiscard]] std::filesystem::path folder(const std::string& name) const;

  std::filesystem::path user_;
  std::filesystem::path system_;
};

/// Where a package or a gateway on this machine keeps its client bundle, first match: OPENSHELL_LOCAL_TLS_DIR alone where set, else the
/// system's for root, else the user's state directory.
absl::StatusOr<ClientBundle> find_local_bundle(const std::string& gateway);

}  // namespace openshell::cli
