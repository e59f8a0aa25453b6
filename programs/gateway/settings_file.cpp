#include "programs/gateway/settings_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

constexpr std::int64_t kSchemaVersion = 2;
constexpr std::size_t kMaxFileBytes = 1U << 20;

// Keys of version 1 that moved or went. Each is an unknown key; the message says where it is now.
struct Moved {
  std::string_view key;
  std::string_view where;
};
constexpr std::array kMoved{
    Moved{"compute_drivers", "it is `compute_driver` (one name) since version 2"},
    Moved{"sandbox_namespace", "it belongs into the driver's table"},
    Moved{"default_image", "it belongs into the driver's table"},
    Moved{"supervisor_image", "it belongs into the driver's table"},
    Moved{"client_tls_secret_name", "it belongs into the driver's table"},
    Moved{"service_account_name", "it belongs into the driver's table"},
    Moved{"host_gateway_ip", "it belongs into the driver's table"},
    Moved{"enable_user_namespaces", "it belongs into the driver's table"},
    Moved{"sa_token_ttl_secs", "it belongs into the driver's table"},
    Moved{"require_client_auth", "it is gone: a client certificate is always optional and verified when present"},
};

std::string place_of(const toml::node& node) { return cat(node.source().begin.line, ":", node.source().begin.column); }

/// Reads one table: each accessor makes its key known, finish() refuses the others. The first mistake is kept.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string path, absl::Status& failed) : table_{table}, path_{std::move(path)}, failed_{failed} {}

  template <class T>
  std::optional<T> value(std::string_view key, const char* expected) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    if (const auto value = node->value_exact<T>()) return *value;
    fail(*node, cat(path_, ".", key), cat("expected ", expected));
    return std::nullopt;
  }
  std::optional<std::string> text(std::string_view key) { return value<std::string>(key, "a string"); }
  std::optional<bool> boolean(std::string_view key) { return value<bool>(key, "true or false"); }
  std::optional<std::uint64_t> number(std::string_view key) {
    const auto number = value<std::int64_t>(key, "a whole number");
    if (!number) return std::nullopt;
    if (*number < 0) {
      fail(*table_.get(key), cat(path_, ".", key), "must not be negative");
      return std::nullopt;
    }
    return static_cast<std::uint64_t>(*number);
  }
  /// A number that has no meaning as 0: "omit the field" is how to say none.
  std::optional<std::uint64_t> positive(std::string_view key) {
    const auto found = number(key);
    if (found && *found == 0) fail(*table_.get(key), cat(path_, ".", key), "must be positive; omit the field for the default");
    return found;
  }
  std::optional<std::vector<std::string>> texts(std::string_view key) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const toml::array* array = node->as_array();
    std::vector<std::string> out;
    for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
      const auto item = (*array)[i].value_exact<std::string>();
      if (!item) array = nullptr;
      if (item) out.push_back(*item);
    }
    if (array != nullptr) return out;
    fail(*node, cat(path_, ".", key), "expected a list of strings");
    return std::nullopt;
  }
  /// Null: not there (or not a table, which is then the mistake).
  const toml::table* table(std::string_view key) {
    const toml::node* node = find(key);
    if (node == nullptr) return nullptr;
    if (node->as_table() == nullptr) fail(*node, cat(path_, ".", key), "expected a TOML table");
    return node->as_table();
  }
  /// True: at least one table stands there.
  bool tables(std::string_view key) {
    const toml::node* node = find(key);
    if (node == nullptr) return false;
    const toml::array* array = node->as_array();
    if (array == nullptr || !std::all_of(array->begin(), array->end(), [](const toml::node& item) { return item.is_table(); })) {
      fail(*node, cat(path_, ".", key), "expected an array of tables");
    }
    return array != nullptr && !array->empty();
  }
  std::string require_text(std::string_view key) {
    auto found = text(key);
    if (!found && failed_.ok()) failed_ = absl::InvalidArgumentError(cat(place_of(table_), ": [", path_, "] needs the key '", key, "'"));
    return found.value_or("");
  }

  void finish() {
    for (const auto& [key, node] : table_) {
      const std::string name{key.str()};
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) unknown(key, name);
    }
  }
  void fail(const toml::node& node, std::string_view field, std::string_view why) {
    if (failed_.ok()) failed_ = absl::InvalidArgumentError(cat(place_of(node), ": invalid gateway config field ", field, ": ", why));
  }

 private:
  const toml::node* find(std::string_view key) {
    known_.emplace_back(key);
    return table_.get(key);
  }
  void unknown(const toml::key& key, const std::string& name) {
    if (!failed_.ok()) return;
    std::string text = cat(key.source().begin.line, ":", key.source().begin.column, ": unknown key '", name, "' in [", path_, "]");
    const auto moved = std::find_if(kMoved.begin(), kMoved.end(), [&](const Moved& old) { return old.key == name; });
    if (moved != kMoved.end()) {
      text += cat("; ", moved->where);
    } else if (const std::string near = nearest_name(name, known_); !near.empty()) {
      text += cat("; the nearest known key is '", near, "'");
    }
    failed_ = absl::InvalidArgumentError(text);
  }

  const toml::table& table_;
  std::string path_;
  absl::Status& failed_;
  std::vector<std::string> known_;
};

void read_tls(TableReader reader, TlsTable& out) {
  out.cert_path = reader.require_text("cert_path");
  out.key_path = reader.require_text("key_path");
  out.client_ca_path = reader.text("client_ca_path");
  out.external_cert_path = reader.text("external_cert_path");
  out.external_key_path = reader.text("external_key_path");
  out.external_server_names = reader.texts("external_server_names").value_or(std::vector<std::string>{});
  reader.finish();
}

void read_jwt(TableReader reader, JwtTable& out) {
  out.signing_key_path = reader.require_text("signing_key_path");
  out.public_key_path = reader.require_text("public_key_path");
  out.kid_path = reader.require_text("kid_path");
  out.gateway_id = reader.text("gateway_id");
  out.ttl_secs = reader.positive("ttl_secs");
  reader.finish();
}

void read_supervisor(TableReader reader, absl::Status& failed, SettingsFile& out) {
  out.supervisor.poll_interval_secs = reader.number("poll_interval_secs");
  out.supervisor.denial_flush_interval_secs = reader.number("denial_flush_interval_secs");
  out.middleware = reader.tables("middleware");
  if (const auto* network = reader.table("network")) {
    TableReader inner{*network, "openshell.supervisor.network", failed};
    out.supervisor.additional_ca_bundle = inner.text("additional_ca_bundle");
    out.supervisor.resolver = inner.texts("resolver");
    inner.finish();
  }
  reader.finish();
}

void read_small_tables(TableReader& gateway, absl::Status& failed, SettingsFile& out) {
  const std::string base = "openshell.gateway.";
  if (const auto* table = gateway.table("auth")) {
    TableReader reader{*table, base + "auth", failed};
    out.allow_unauthenticated_users = reader.boolean("allow_unauthenticated_users");
    reader.finish();
  }
  if (const auto* table = gateway.table("mtls_auth")) {
    TableReader reader{*table, base + "mtls_auth", failed};
    out.mtls_auth_enabled = reader.boolean("enabled");
    out.operator_enabled = reader.boolean("operator_enabled");
    out.mtls_auth_table = !(table->size() == 1 && out.operator_enabled);
    reader.finish();
  }
  if (const auto* table = gateway.table("credential_storage")) {
    TableReader reader{*table, base + "credential_storage", failed};
    out.credential_storage.emplace();
    out.credential_storage->key_encryption_key_path = reader.text("key_encryption_key_path");
    out.credential_storage->key_encryption_key_env = reader.text("key_encryption_key_env");
    reader.finish();
  }
  if (const auto* table = gateway.table("failure_handling")) {
    TableReader reader{*table, base + "failure_handling", failed};
    out.gateway_outage_limit_secs = reader.positive("gateway_outage_limit_secs");
    reader.finish();
  }
  if (const auto* table = gateway.table("otlp")) {
    TableReader reader{*table, base + "otlp", failed};
    out.otlp = true;
    (void)reader.require_text("endpoint");
    (void)reader.text("service_name");
    reader.finish();
  }
  if (const auto* table = gateway.table("oidc")) {
    TableReader reader{*table, base + "oidc", failed};
    OidcTable& oidc = out.oidc.emplace();
    oidc.issuer = reader.require_text("issuer");
    oidc.audience = reader.require_text("audience");
    oidc.ca_bundle = reader.text("ca_bundle");
    oidc.roles_claim = reader.text("roles_claim");
    oidc.admin_role = reader.text("admin_role");
    oidc.user_role = reader.text("user_role");
    oidc.scopes_claim = reader.text("scopes_claim");
    oidc.jwks_ttl_secs = reader.positive("jwks_ttl_secs");
    oidc.jwks_allowed_origins = reader.texts("jwks_allowed_origins");
    oidc.dangerously_allow_insecure_http = reader.boolean("dangerously_allow_insecure_http");
    reader.finish();
  }
}

void read_gateway(const toml::table& table, absl::Status& failed, SettingsFile& out) {
  TableReader gateway{table, "openshell.gateway", failed};
  if (table.contains("database_url")) {
    failed = absl::InvalidArgumentError(
        "`database_url` is not allowed in the gateway config file - set the OPENSHELL_DB_URL env var or pass --db-url on the command line");
    return;
  }
  out.name = gateway.text("name");
  out.bind_address = gateway.text("bind_address");
  out.bind_socket = gateway.text("bind_socket");
  out.health_bind_address = gateway.text("health_bind_address");
  out.metrics_bind_address = gateway.text("metrics_bind_address");
  out.operator_socket = gateway.text("operator_socket");
  out.operator_bind_address = gateway.text("operator_bind_address");
  out.log_level = gateway.text("log_level");
  out.compute_driver = gateway.text("compute_driver");
  out.credential_drivers = gateway.texts("credential_drivers");
  out.default_credential_driver = gateway.text("default_credential_driver");
  out.ssh_session_ttl_secs = gateway.number("ssh_session_ttl_secs");
  out.grpc_rate_limit_requests = gateway.number("grpc_rate_limit_requests");
  out.grpc_rate_limit_window_seconds = gateway.number("grpc_rate_limit_window_seconds");
  out.policy_validation_failure_mode = gateway.text("policy_validation_failure_mode");
  out.server_sans = gateway.texts("server_sans");
  out.enable_loopback_service_http = gateway.boolean("enable_loopback_service_http");
  out.enable_websocket_tunnel = gateway.boolean("enable_websocket_tunnel");
  out.guest_tls_ca = gateway.text("guest_tls_ca");
  const auto guest_cert = gateway.text("guest_tls_cert");
  const auto guest_key = gateway.text("guest_tls_key");
  if (guest_cert.has_value() != guest_key.has_value() && failed.ok()) {
    failed = absl::InvalidArgumentError("invalid gateway guest TLS configuration: guest_tls_cert and guest_tls_key go together");
  }
  if (guest_cert)
    out.warnings.push_back("guest_tls_cert and guest_tls_key have no effect: supervisors present their token, no certificate");
  out.image_preparation_timeout_seconds = gateway.number("image_preparation_timeout_seconds");
  out.config_delivery_mode = gateway.text("config_delivery_mode");
  out.reported_version = gateway.text("reported_version");
  out.disable_tls = gateway.boolean("disable_tls");
  if (const auto* tls = gateway.table("tls")) read_tls({*tls, "openshell.gateway.tls", failed}, out.tls.emplace());
  if (const auto* jwt = gateway.table("gateway_jwt")) read_jwt({*jwt, "openshell.gateway.gateway_jwt", failed}, out.gateway_jwt.emplace());
  read_small_tables(gateway, failed, out);
  out.interceptors = gateway.tables("interceptors");
  out.provider_profile_sources = gateway.tables("provider_profile_sources");
  gateway.finish();
  if (out.credential_drivers && out.credential_drivers->empty() && failed.ok()) {
    failed = absl::InvalidArgumentError(
        "invalid gateway config field openshell.gateway.credential_drivers: omit the field to use default encrypted gateway credential "
        "storage, or specify exactly one external "
        "credential driver");
  }
}

void read_drivers(const toml::table& drivers, std::string_view what, absl::Status& failed, std::map<std::string, std::string>* out) {
  for (const auto& [key, node] : drivers) {
    const auto* table = node.as_table();
    if (table == nullptr) {
      if (failed.ok())
        failed = absl::InvalidArgumentError(cat(place_of(node), ": invalid gateway config field openshell.", what, ".",
                                                std::string_view{key.str()}, ": expected a TOML table"));
      continue;
    }
    if (out == nullptr) continue;
    std::ostringstream text;
    text << toml::toml_formatter{*table};
    out->emplace(std::string{key.str()}, text.str());
  }
}

absl::Status check_version(const toml::table& openshell, FileProblem& problem) {
  const auto* node = openshell.get("version");
  if (node == nullptr) {
    problem = FileProblem::kMissingVersion;
    return absl::InvalidArgumentError("gateway config schema version is required; add `[openshell]` and `version = 2`");
  }
  const auto version = node->value_exact<std::int64_t>();
  if (version && *version == kSchemaVersion) return absl::OkStatus();
  problem = !version                    ? FileProblem::kMalformed
            : *version == 1             ? FileProblem::kLegacySchema
            : *version > kSchemaVersion ? FileProblem::kFutureVersion
                                        : FileProblem::kUnsupportedVersion;
  if (!version) return absl::InvalidArgumentError("invalid gateway config field openshell.version: expected a whole number");
  return absl::InvalidArgumentError(cat("unsupported gateway config version ", *version,
                                        "; this build requires version 2; migrate legacy fields to the version 2 schema"));
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  constexpr std::size_t kFarthest = 2;
  std::string best;
  std::size_t best_distance = std::min(kFarthest + 1, name.size());
  for (const auto& candidate : known) {
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= name.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j < row.size(); ++j) {
        const std::size_t above = row[j];
        row[j] = std::min({row[j - 1] + 1, above + 1, diagonal + (name[i - 1] == candidate[j - 1] ? 0 : 1)});
        diagonal = above;
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

absl::StatusOr<SettingsFile> parse_settings(std::string_view text, const std::string& path, FileProblem* problem) {
  FileProblem local = FileProblem::kNone;
  FileProblem& why = problem != nullptr ? *problem : local;
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(cat("failed to parse gateway config file '", path, "': ", what));
  };
  const auto parsed = toml::parse(text, path);
  if (!parsed) {
    why = FileProblem::kMalformed;
    const auto& error = parsed.error();
    return wrong(cat(error.source().begin.line, ":", error.source().begin.column, ": ", error.description()));
  }
  const toml::table& root = parsed.table();
  SettingsFile out;
  absl::Status failed;
  TableReader top{root, "(root)", failed};
  const auto* openshell = top.table("openshell");
  static const toml::table kEmpty;
  if (auto status = check_version(openshell == nullptr ? kEmpty : *openshell, why); !status.ok()) return status;
  top.finish();
  TableReader reader{*openshell, "openshell", failed};
  (void)reader.number("version");
  if (const auto* gateway = reader.table("gateway")) read_gateway(*gateway, failed, out);
  if (const auto* supervisor = reader.table("supervisor")) read_supervisor({*supervisor, "openshell.supervisor", failed}, failed, out);
  if (const auto* drivers = reader.table("drivers")) read_drivers(*drivers, "drivers", failed, &out.driver_tables);
  if (const auto* drivers = reader.table("credential_drivers")) read_drivers(*drivers, "credential_drivers", failed, nullptr);
  reader.finish();
  if (failed.ok()) return out;
  why = FileProblem::kMalformed;
  return wrong(to_std(failed.message()));
}

absl::StatusOr<SettingsFile> read_settings_file(const std::string& path, FileProblem* problem) {
  FileProblem local = FileProblem::kNone;
  FileProblem& why = problem != nullptr ? *problem : local;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    why = errno == ENOENT ? FileProblem::kMissingPath : FileProblem::kUnreadablePath;
    return absl::NotFoundError(cat("failed to read gateway config file '", path, "': ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    why = FileProblem::kNonRegularPath;
    return absl::InvalidArgumentError(cat("gateway config path '", path, "' is not a regular file (",
                                          S_ISLNK(info.st_mode)   ? "symlink"
                                          : S_ISDIR(info.st_mode) ? "directory"
                                                                  : "non-regular",
                                          ")"));
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t got = -1;
  while (fd >= 0 && text.size() <= kMaxFileBytes && (got = ::read(fd, buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (got != 0) {
    why = FileProblem::kUnreadablePath;
    return absl::InvalidArgumentError(
        cat("failed to read gateway config file '", path, "': ", text.size() > kMaxFileBytes ? "larger than 1 MiB" : std::strerror(error)));
  }
  return parse_settings(text, path, problem);
}

absl::StatusOr<ProcessTable> read_process_table(const std::string& toml_text) {
  const auto parsed = toml::parse(toml_text);
  if (!parsed) return absl::InvalidArgumentError("invalid [openshell.drivers.process] table: it can not be read");
  absl::Status failed;
  TableReader reader{parsed.table(), "openshell.drivers.process", failed};
  ProcessTable out;
  out.state_dir = reader.text("state_dir");
  out.runtime_dir = reader.text("runtime_dir");
  out.bundle_dir = reader.text("bundle_dir");
  out.host_gateway_ip = reader.text("host_gateway_ip");
  out.cgroup_parent = reader.text("cgroup_parent");
  out.grpc_endpoint = reader.text("grpc_endpoint");
  out.sandbox_uid_range = reader.text("sandbox_uid_range");
  out.sandbox_uid = reader.positive("sandbox_uid");
  out.sandbox_gid = reader.positive("sandbox_gid");
  out.supervisor_uid = reader.positive("supervisor_uid");
  out.supervisor_gid = reader.positive("supervisor_gid");
  out.default_memory_limit = reader.text("default_memory_limit");
  out.tmp_size_limit = reader.text("tmp_size_limit");
  out.workspace_size_limit = reader.text("workspace_size_limit");
  out.sandbox_pids_limit = reader.positive("sandbox_pids_limit");
  out.stop_timeout_secs = reader.number("stop_timeout_secs");
  out.require_limits = reader.boolean("require_limits");
  out.keep_on_shutdown = reader.boolean("keep_on_shutdown");
  out.allow_image_mismatch = reader.boolean("allow_image_mismatch");
  reader.finish();
  if (failed.ok()) return out;
  return absl::InvalidArgumentError(cat("invalid [openshell.drivers.process] table: ", failed.message()));
}

}  // namespace openshell::gateway
