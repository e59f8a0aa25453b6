// gateway.toml, schema version 2: read strictly, nothing merged, nothing derived. A key that is not known is an error that names the
// nearest one that is.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::gateway {

struct TlsTable {
  std::optional<std::string> cert_path, key_path, client_ca_path, external_cert_path, external_key_path;
  std::vector<std::string> external_server_names;
};
struct JwtTable {
  std::string signing_key_path, public_key_path, kid_path;
  std::optional<std::string> gateway_id;
  std::optional<std::uint64_t> ttl_secs;
};
struct CredentialStorageTable {
  std::optional<std::string> key_encryption_key_path, key_encryption_key_env;
};
struct SupervisorTable {
  std::optional<std::uint64_t> poll_interval_secs, denial_flush_interval_secs;
  std::optional<std::string> additional_ca_bundle;
  std::optional<std::vector<std::string>> resolver;
};

struct OidcTable {
  std::string issuer, audience;
  std::optional<std::string> ca_bundle, roles_claim, admin_role, user_role, scopes_claim;
  std::optional<std::uint64_t> jwks_ttl_secs;
  std::optional<std::vector<std::string>> jwks_allowed_origins;
  std::optional<bool> dangerously_allow_insecure_http;
};

struct SettingsFile {
  std::optional<std::string> name, bind_address, bind_socket, health_bind_address, metrics_bind_address, operator_socket,
      operator_bind_address, log_level, compute_driver, default_credential_driver, policy_validation_failure_mode, guest_tls_ca,
      config_delivery_mode, reported_version;
  std::optional<std::vector<std::string>> credential_drivers, server_sans;
  std::optional<std::uint64_t> ssh_session_ttl_secs, grpc_rate_limit_requests, grpc_rate_limit_window_seconds,
      image_preparation_timeout_seconds, gateway_outage_limit_secs;
  std::optional<bool> enable_loopback_service_http, enable_websocket_tunnel, disable_tls;
  std::optional<TlsTable> tls;
  std::optional<JwtTable> gateway_jwt;
  std::optional<CredentialStorageTable> credential_storage;
  std::optional<OidcTable> oidc;
  bool interceptors = false;  ///< at least one
  bool provider_profile_sources = false;
  bool middleware = false;
  bool otlp = false;
  std::optional<bool> allow_unauthenticated_users;
  bool mtls_auth_table = false;  ///< there, with something besides operator_enabled
  std::optional<bool> mtls_auth_enabled, operator_enabled;
  SupervisorTable supervisor;
  std::map<std::string, std::string> driver_tables;  ///< by name, as TOML text; only the selected one is read (read_process_table)
  std::vector<std::string> warnings;
};

/// What went wrong, for `config preflight`: one of its categories.
enum class FileProblem {
  kNone,
  kNonRegularPath,
  kMissingPath,
  kUnreadablePath,
  kMalformed,
  kMissingVersion,
  kLegacySchema,
  kFutureVersion,
  kUnsupportedVersion
};

/// Opens without following a symbolic link. `problem`, where given, says why it failed.
absl::StatusOr<SettingsFile> read_settings_file(const std::string& path, FileProblem* problem = nullptr);
/// The text of such a file; `path` is for messages.
absl::StatusOr<SettingsFile> parse_settings(std::string_view text, const std::string& path, FileProblem* problem = nullptr);

/// `[openshell.drivers.process]`.
struct ProcessTable {
  std::optional<std::string> state_dir, runtime_dir, host_gateway_ip, cgroup_parent, grpc_endpoint, sandbox_uid_range, bundle_dir,
      default_memory_limit, tmp_size_limit, workspace_size_limit;
  std::optional<std::uint64_t> sandbox_uid, sandbox_gid, supervisor_uid, supervisor_gid, sandbox_pids_limit, stop_timeout_secs;
  std::optional<bool> require_limits, keep_on_shutdown, allow_image_mismatch;
};
/// `invalid [openshell.drivers.process] table: ...`.
absl::StatusOr<ProcessTable> read_process_table(const std::string& toml_text);

/// The known name with the smallest edit distance, at most 2 and less than the name's length; empty: none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace openshell::gateway
