#include "programs/gateway/config.hpp"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "observability/text.hpp"
#include "pki/certificate.hpp"
#include "pki/keys.hpp"
#include "programs/gateway/ca_bundle.hpp"
#include "programs/gateway/local_pki.hpp"

namespace openshell::gateway {
namespace {

constexpr std::size_t kMaxSocketPath = 107;
constexpr std::size_t kMaxResolvers = 8;
constexpr std::uint64_t kMaxOutageSecs = std::numeric_limits<std::uint32_t>::max();  // what a supervisor's flag takes
constexpr std::uint64_t kMaxSshSessionSecs = 315'360'000;

absl::Status invalid(std::string text) { return absl::InvalidArgumentError(std::move(text)); }

absl::StatusOr<std::uint64_t> parse_number(std::string_view flag, std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > most)
    return invalid(cat("--", flag, " must be a number from 0 to ", most, ", got '", text, "'"));
  return value;
}

absl::StatusOr<bool> parse_bool(std::string_view flag, std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return invalid(cat("--", flag, " must be true or false, got '", text, "'"));
}

bool is_address(std::string_view text) {
  const std::string copy{text};
  std::array<unsigned char, 16> bytes{};
  return ::inet_pton(AF_INET, copy.c_str(), bytes.data()) == 1 || ::inet_pton(AF_INET6, copy.c_str(), bytes.data()) == 1;
}

std::optional<std::string> first(const CommandLine& flags, std::string_view flag, const std::optional<std::string>& file) {
  if (auto value = flags.find(flag)) return value;
  return file;
}

std::string read_file(const std::string& path, bool& ok) {
  std::ifstream file{path, std::ios::binary};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  ok = file.is_open() && !file.bad();
  return text;
}

/// What merging has to keep in sight. Each step fills a part of `out`; the order is that of the start.
class Merger {
 public:
  Merger(const CommandLine& flags, const Environment& environment, const SettingsFile& file, const Places& places)
      : flags_{flags}, environment_{environment}, file_{file} {
    out_.places = places;
    out_.warnings = file.warnings;
  }

  absl::StatusOr<GatewayConfig> run() {
    using Step = absl::Status (Merger::*)();
    for (const Step step :
         {&Merger::unbuilt, &Merger::without_effect, &Merger::basics, &Merger::listeners, &Merger::driver, &Merger::tls,
          &Merger::authentication, &Merger::jwt, &Merger::ports, &Merger::rate_limit, &Merger::supervisors, &Merger::process_table}) {
      if (auto status = (this->*step)(); !status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  /// Settings whose part is not built. Starting without what was asked for would be worse than not starting.
  absl::Status unbuilt() {
    if (file_.interceptors) return invalid("gateway interceptor initialization failed: interceptors are not available in this build");
    if (file_.middleware) return invalid("middleware registration failed: middleware is not available in this build");
    if (file_.provider_profile_sources)
      return invalid("provider profile source configuration failed: profile sources are not available in this build");
    if (file_.credential_drivers) return invalid("external credential drivers are not available in this build; omit credential_drivers");
    if (file_.default_credential_driver)
      return invalid("default_credential_driver requires credential_drivers to name an external credential driver");
    if (file_.otlp) return invalid("OTLP export is not available in this build; remove [openshell.gateway.otlp]");
    if (flags_.has("bind-socket") || file_.bind_socket) return invalid("bind_socket is not available in this build");
    if (file_.tls && (file_.tls->external_cert_path || file_.tls->external_key_path))
      return invalid("an external certificate by server name is not available in this build");
    return absl::OkStatus();
  }

  /// Settings that are right, and whose part is not built, and without which the gateway is still what was asked for, only less. Nobody
  /// shall wonder why nothing happens: each is named once at the start.
  absl::Status without_effect() {
    const auto say = [this](bool set, std::string_view key, std::string_view what) {
      if (set) out_.warnings.push_back(cat(key, " has no effect in this build: ", what));
    };
    constexpr std::string_view kServices = "sandbox services are not served";
    say(file_.name || flags_.has("name"), "name", "nothing shows the gateway's name");
    say(file_.server_sans || flags_.has("server-san"), "server_sans", kServices);
    say(file_.enable_loopback_service_http || flags_.has("enable-loopback-service-http"), "enable_loopback_service_http", kServices);
    say(file_.enable_websocket_tunnel || flags_.has("enable-websocket-tunnel"), "enable_websocket_tunnel", "there is no WebSocket tunnel");
    say(file_.image_preparation_timeout_seconds.has_value(), "image_preparation_timeout_seconds", "no image is prepared");
    say(file_.tls && !file_.tls->external_server_names.empty(), "external_server_names", "there is one certificate for all names");
    return absl::OkStatus();
  }

  absl::Status basics() {
    out_.name = first(flags_, "name", file_.name).value_or("openshell");
    const auto begin = out_.name.find_first_not_of(" \t");
    if (begin == std::string::npos) return invalid("gateway name must not be empty");
    out_.name = out_.name.substr(begin, out_.name.find_last_not_of(" \t") - begin + 1);
    const auto directive = environment_.find("RUST_LOG");
    if (auto level = log::parse_level(directive.value_or("")); directive && level.ok()) {
      out_.log_level = *level;
    } else {
      auto wanted = log::parse_level(first(flags_, "log-level", file_.log_level).value_or("info"));
      if (!wanted.ok()) return wanted.status();
      out_.log_level = *wanted;
    }
    out_.database_url = flags_.find("db-url").value_or(cat("sqlite:", out_.places.state, "/gateway/openshell.db"));
    out_.policy_validation_failure_mode = file_.policy_validation_failure_mode.value_or("fail_closed");
    if (out_.policy_validation_failure_mode != "fail_closed" && out_.policy_validation_failure_mode != "retain_last_valid") {
      return invalid(cat("invalid gateway config field openshell.gateway.policy_validation_failure_mode: '",
                         out_.policy_validation_failure_mode, "' is neither 'fail_closed' nor 'retain_last_valid'"));
    }
    const std::string delivery = file_.config_delivery_mode.value_or("push");
    if (delivery != "push" && delivery != "poll")
      return invalid(
          cat("invalid gateway config field openshell.gateway.config_delivery_mode: '", delivery, "' is neither 'push' nor 'poll'"));
    out_.config_push = delivery == "push";
    out_.ssh_session_ttl_secs = file_.ssh_session_ttl_secs.value_or(out_.ssh_session_ttl_secs);
    if (out_.ssh_session_ttl_secs > kMaxSshSessionSecs)
      return invalid(cat("invalid gateway config field openshell.gateway.ssh_session_ttl_secs: at most ", kMaxSshSessionSecs,
                         " (ten years); 0 means that sessions do not expire"));
    out_.reported_version = file_.reported_version.value_or(std::string{kInterfaceVersion});
    const std::uint64_t outage = file_.gateway_outage_limit_secs.value_or(120);
    if (outage > kMaxOutageSecs)
      return invalid(
          cat("invalid gateway config field openshell.gateway.failure_handling.gateway_outage_limit_secs: must be between 1 and ",
              kMaxOutageSecs, ", got ", outage));
    out_.gateway_outage_limit_secs = static_cast<std::uint32_t>(outage);
    if (file_.image_preparation_timeout_seconds &&
        (*file_.image_preparation_timeout_seconds < 1 || *file_.image_preparation_timeout_seconds > 86'400)) {
      return invalid("image_preparation_timeout_seconds must be between 1 and 86400");
    }
    if (file_.credential_storage) out_.credential_storage = *file_.credential_storage;
    if (out_.credential_storage.key_encryption_key_env && out_.credential_storage.key_encryption_key_path) {
      return invalid("set only one of key_encryption_key_path and key_encryption_key_env in [openshell.gateway.credential_storage]");
    }
    return absl::OkStatus();
  }

  absl::Status listeners() {
    auto bind = parse_address("openshell.gateway.bind_address", file_.bind_address.value_or(cat("127.0.0.1:", kDefaultPort)));
    if (!bind.ok()) return bind.status();
    out_.bind = *bind;
    if (const auto ip = flags_.find("bind-address")) {
      if (!is_address(*ip)) return invalid(cat("--bind-address must be an IP address, got '", *ip, "'"));
      out_.bind.ip = *ip;
    }
    if (const auto port = flags_.find("port")) {
      auto number = parse_number("port", *port, 65'535);
      if (!number.ok()) return number.status();
      out_.bind.port = static_cast<std::uint16_t>(*number);
    }
    if (auto status = auxiliary("health-port", "health_bind_address", file_.health_bind_address, out_.health); !status.ok()) return status;
    if (auto status = auxiliary("metrics-port", "metrics_bind_address", file_.metrics_bind_address, out_.metrics); !status.ok())
      return status;
    out_.operator_socket = file_.operator_socket.value_or(cat(out_.places.run, "/gateway/operator.sock"));
    if (!out_.operator_socket.starts_with('/') || out_.operator_socket.size() > kMaxSocketPath)
      return invalid("operator_socket must be an absolute path of at most 107 bytes");
    if (file_.operator_bind_address) {
      auto address = parse_address("operator_bind_address", *file_.operator_bind_address);
      if (!address.ok() || address->port == 0) return invalid("operator_bind_address must be an IP address with a port");
      if (!address->loopback()) return invalid(cat("operator_bind_address must be a loopback address (got ", address->ip, ")"));
      out_.operator_bind = *address;
    }
    return absl::OkStatus();
  }

  absl::Status auxiliary(std::string_view flag, std::string_view key, const std::optional<std::string>& file, std::optional<Address>& out) {
    if (const auto port = flags_.find(flag)) {
      auto number = parse_number(flag, *port, 65'535);
      if (!number.ok()) return number.status();
      if (*number != 0) out = Address{out_.bind.ip, static_cast<std::uint16_t>(*number)};
      return absl::OkStatus();
    }
    if (!file) return absl::OkStatus();
    auto address = parse_address(cat("openshell.gateway.", key), *file);
    if (!address.ok()) return address.status();
    out = *address;
    return absl::OkStatus();
  }

  absl::Status driver() {
    auto name = first(flags_, "compute-driver", file_.compute_driver);
    const auto legacy = environment_.find("OPENSHELL_DRIVERS");
    if (legacy) {
      if (legacy->find(',') != std::string::npos) {
        return invalid("OPENSHELL_DRIVERS must contain exactly one non-empty compute driver name; comma-delimited lists are not supported");
      }
      if (!name) {
        name = legacy;
        out_.warnings.push_back("OPENSHELL_DRIVERS is deprecated; migrate to OPENSHELL_COMPUTE_DRIVER");
      } else if (*name != *legacy) {
        return invalid("OPENSHELL_DRIVERS conflicts with the canonical compute-driver selection; remove OPENSHELL_DRIVERS");
      }
    }
    if (flags_.has("compute-driver-socket")) return invalid("external compute drivers are not available in this build");
    // Of the drivers that would be looked for, this build has one.
    std::string text = name.value_or("process");
    const auto space = [](char c) { return c == ' ' || c == '\t'; };
    text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
    while (!text.empty() && space(text.back())) text.pop_back();
    if (text.empty()) return invalid("compute driver name cannot be empty");
    for (char& c : text) {
      const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
      if (!fine) return invalid(cat("invalid compute driver name '", text, "'. use ASCII letters, digits, '-' or '_'"));
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    if (text != "process") return invalid(cat("compute driver '", text, "' is not available in this build; available: process"));
    out_.compute_driver = text;
    return absl::OkStatus();
  }

  absl::Status tls() {
    bool disabled = file_.disable_tls.value_or(false);
    if (const auto flag = flags_.find("disable-tls")) {
      auto value = parse_bool("disable-tls", *flag);
      if (!value.ok()) return value.status();
      disabled = *value;
    }
    TlsFiles files;
    files.certificate = first(flags_, "tls-cert", file_.tls ? file_.tls->cert_path : std::nullopt).value_or("");
    files.key = first(flags_, "tls-key", file_.tls ? file_.tls->key_path : std::nullopt).value_or("");
    files.client_ca = first(flags_, "tls-client-ca", file_.tls ? file_.tls->client_ca_path : std::nullopt).value_or("");
    if (disabled && !files.client_ca.empty()) {
      return invalid(
          "--disable-tls and --tls-client-ca are mutually exclusive. Client certificate verification requires that TLS be enabled.");
    }
    if (disabled && file_.guest_tls_ca) return invalid("invalid gateway guest TLS configuration: guest_tls_ca is set but TLS is disabled");
    if (disabled) return absl::OkStatus();
    auto bundle = find_tls_bundle(out_.places.tls);
    if (!bundle.ok()) return bundle.status();
    const std::string& directory = out_.places.tls;
    if (*bundle == BundleState::kComplete && files.certificate.empty() && files.key.empty() && files.client_ca.empty()) {
      files = {cat(directory, "/server/tls.crt"), cat(directory, "/server/tls.key"), cat(directory, "/ca.crt")};
    }
    if (files.certificate.empty()) return invalid("--tls-cert is required when TLS is enabled (use --disable-tls to skip)");
    if (files.key.empty()) return invalid("--tls-key is required when TLS is enabled (use --disable-tls to skip)");
    out_.guest_tls_ca = file_.guest_tls_ca.value_or(*bundle == BundleState::kComplete ? cat(directory, "/ca.crt") : std::string{});
    if (out_.guest_tls_ca.empty())
      return invalid(
          "invalid gateway guest TLS configuration: guest_tls_ca is required when TLS is on and there is no local certificate bundle");
    out_.tls = files;
    return check_tls_files();
  }

  absl::Status check_tls_files() const {
    bool ok = false;
    const std::string certificate_pem = read_file(out_.tls->certificate, ok);
    if (!ok) return invalid(cat("failed to open cert file: ", out_.tls->certificate));
    if (certificate_pem.find("-----BEGIN CERTIFICATE-----") == std::string::npos)
      return invalid(cat("no certificates found in file ", out_.tls->certificate));
    auto certificate = pki::Certificate::from_pem(certificate_pem);
    if (!certificate.ok()) return invalid(cat("certificate in ", out_.tls->certificate, " can not be read"));
    const Secret key_pem{read_file(out_.tls->key, ok)};
    if (!ok) return invalid(cat("failed to open key file: ", out_.tls->key));
    if (key_pem.reveal().find("PRIVATE KEY-----") == std::string_view::npos)
      return invalid(cat("no private key found in file ", out_.tls->key));
    auto key = pki::PrivateKey::from_pem(key_pem);
    if (!key.ok()) return invalid(cat("unsupported private key type: ", out_.tls->key));
    if (!certificate->matches(*key))
      return invalid(cat("the key in ", out_.tls->key, " is not that of the certificate in ", out_.tls->certificate));
    if (out_.tls->client_ca.empty()) return absl::OkStatus();
    const std::string ca = read_file(out_.tls->client_ca, ok);
    if (!ok) return invalid(cat("failed to open client CA file: ", out_.tls->client_ca));
    return pki::certificates_from_pem(ca).ok() ? absl::OkStatus() : invalid(cat("no certificates found in file ", out_.tls->client_ca));
  }

  absl::Status authentication() {
    const bool client_ca = out_.tls && !out_.tls->client_ca.empty();
    auto oidc = merge_oidc(flags_, file_.oidc);
    if (!oidc.ok()) return oidc.status();
    out_.oidc = *std::move(oidc);
    out_.mtls_users = client_ca && !out_.oidc;  // the driver is a local one
    if (file_.mtls_auth_table) out_.mtls_users = file_.mtls_auth_enabled.value_or(false);
    if (const auto flag = flags_.find("enable-mtls-auth")) {
      auto value = parse_bool("enable-mtls-auth", *flag);
      if (!value.ok()) return value.status();
      out_.mtls_users = *value;
    }
    out_.operators = file_.operator_enabled.value_or(false);
    out_.allow_unauthenticated_users = file_.allow_unauthenticated_users.value_or(false);
    if (out_.operators && !client_ca) return invalid("operator authentication requires TLS and a client CA");
    if (out_.mtls_users && !out_.tls)
      return invalid("mTLS user authentication requires TLS. Remove --disable-tls or disable --enable-mtls-auth.");
    if (out_.mtls_users && !client_ca)
      return invalid("mTLS user authentication requires --tls-client-ca so client certificates can be verified.");
    if (!out_.mtls_users && !out_.oidc && !out_.allow_unauthenticated_users && !out_.bind.loopback()) {
      return invalid("no user authentication is configured: bind to a loopback address or a Unix socket, or configure OIDC or mTLS");
    }
    if (out_.allow_unauthenticated_users) {
      out_.warnings.push_back(
          "Unauthenticated user access enabled - only use this for trusted local development or a fully trusted fronting proxy");
    } else if (!out_.mtls_users && !out_.oidc) {
      out_.warnings.push_back("No user authentication is configured: everybody who can reach this loopback port is a user");
    }
    if (out_.oidc && !out_.tls && !out_.bind.loopback())
      out_.warnings.push_back(
          "OIDC without TLS on an address that others reach: bearer tokens cross the network in clear unless a proxy in front ends TLS");
    return absl::OkStatus();
  }

  absl::Status jwt() {
    auto bundle = find_jwt_bundle(out_.places.tls);
    if (!bundle.ok()) return bundle.status();
    if (file_.gateway_jwt) {
      const JwtTable& table = *file_.gateway_jwt;
      api::TokenConfig& tokens = out_.tokens.emplace();
      tokens.signing_key_path = table.signing_key_path;
      tokens.public_key_path = table.public_key_path;
      tokens.kid_path = table.kid_path;
      tokens.gateway_id = table.gateway_id.value_or("openshell");
      if (table.ttl_secs) tokens.ttl = std::chrono::seconds{*table.ttl_secs};
    } else if (*bundle == BundleState::kComplete) {
      api::TokenConfig& tokens = out_.tokens.emplace();
      tokens.signing_key_path = cat(out_.places.tls, "/jwt/signing.pem");
      tokens.public_key_path = cat(out_.places.tls, "/jwt/public.pem");
      tokens.kid_path = cat(out_.places.tls, "/jwt/kid");
    } else {
      out_.warnings.push_back("sandbox JWT auth is not configured: no sandbox can be started (run openshell-gateway generate-certs)");
    }
    return absl::OkStatus();
  }

  absl::Status ports() {
    struct Named {
      std::string_view name;
      std::uint16_t port;
    };
    std::vector<Named> all{{"--port", out_.bind.port}};
    if (out_.health) all.push_back({"--health-port", out_.health->port});
    if (out_.metrics) all.push_back({"--metrics-port", out_.metrics->port});
    if (out_.operator_bind) all.push_back({"operator_bind_address", out_.operator_bind->port});
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        if (all[i].port == all[j].port && all[i].port != 0)
          return invalid(cat(all[i].name, " and ", all[j].name, " must be different (both set to ", all[i].port, ")"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status rate_limit() {
    auto requests = rate_value("grpc-rate-limit-requests", file_.grpc_rate_limit_requests);
    if (!requests.ok()) return requests.status();
    auto window = rate_value("grpc-rate-limit-window-seconds", file_.grpc_rate_limit_window_seconds);
    if (!window.ok()) return window.status();
    if ((*requests && **requests == 0) || (*window && **window == 0) || (!*requests && !*window)) return absl::OkStatus();
    if (!*requests || !*window) {
      return invalid(
          "gRPC rate limiting requires both --grpc-rate-limit-requests and --grpc-rate-limit-window-seconds (TOML keys "
          "grpc_rate_limit_requests and "
          "grpc_rate_limit_window_seconds) to be positive; set either value to 0 to disable");
    }
    out_.rate_limit_requests = **requests;
    out_.rate_limit_window_seconds = **window;
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<std::uint64_t>> rate_value(std::string_view flag, const std::optional<std::uint64_t>& file) const {
    const auto text = flags_.find(flag);
    if (!text) return file;
    auto number = parse_number(flag, *text, std::numeric_limits<std::int64_t>::max());
    if (!number.ok()) return number.status();
    return std::optional<std::uint64_t>{*number};
  }

  absl::Status supervisors() {
    const SupervisorTable& table = file_.supervisor;
    const auto seconds = [](std::string_view key, const std::optional<std::uint64_t>& value,
                            std::optional<std::uint32_t>& out) -> absl::Status {
      if (!value) return absl::OkStatus();
      if (*value < 1 || *value > 3600)
        return invalid(cat("invalid gateway config field openshell.supervisor.", key, ": must be between 1 and 3600"));
      out = static_cast<std::uint32_t>(*value);
      return absl::OkStatus();
    };
    if (auto status = seconds("poll_interval_secs", table.poll_interval_secs, out_.supervisor.poll_interval_secs); !status.ok())
      return status;
    if (auto status = seconds("denial_flush_interval_secs", table.denial_flush_interval_secs, out_.supervisor.denial_flush_interval_secs);
        !status.ok())
      return status;
    if (table.additional_ca_bundle) {
      auto pem = read_ca_bundle(*table.additional_ca_bundle);
      if (!pem.ok()) {
        return invalid(cat("invalid gateway config field openshell.supervisor.network.additional_ca_bundle: ", pem.status().message()));
      }
      out_.supervisor.additional_ca_bundle_pem = *std::move(pem);
    }
    return table.resolver ? resolvers(*table.resolver) : absl::OkStatus();
  }

  absl::Status resolvers(const std::vector<std::string>& entries) {
    const std::string field = "invalid gateway config field openshell.supervisor.network.resolver: ";
    if (entries.empty()) return invalid(cat(field, "omit the field to use the host's resolver"));
    if (entries.size() > kMaxResolvers) return invalid(cat(field, "at most ", kMaxResolvers, " entries, got ", entries.size()));
    std::set<std::string> seen;
    for (const auto& entry : entries) {
      auto address = parse_address("resolver", entry);
      if (!address.ok() || address->port == 0) return invalid(cat(field, "entry '", entry, "' is not an address:port"));
      if (!seen.insert(address->text()).second) return invalid(cat(field, "entry '", entry, "' is there twice"));
      out_.supervisor.resolvers.push_back(address->text());
    }
    return absl::OkStatus();
  }

  absl::Status process_table() {
    const auto found = file_.driver_tables.find("process");
    auto table = read_process_table(found == file_.driver_tables.end() ? std::string{} : found->second);
    if (!table.ok()) return table.status();
    drivers::ProcessDriverOptions& process = out_.process;
    process.state_dir = table->state_dir.value_or(cat(out_.places.state, "/process-driver"));
    process.runtime_dir = table->runtime_dir.value_or(cat(out_.places.run, "/process-driver"));
    process.bundle_dir = table->bundle_dir.value_or("");
    process.gateway_id = out_.tokens ? out_.tokens->gateway_id : "openshell";
    process.driver_version = kOurVersion;
    process.cgroup_parent = table->cgroup_parent.value_or("");
    if (table->host_gateway_ip) {
      if (!is_address(*table->host_gateway_ip))
        return in_table(cat("host_gateway_ip must be an IP address, got '", *table->host_gateway_ip, "'"));
      process.host_gateway_ip = *table->host_gateway_ip;
    }
    const auto id = [](const std::optional<std::uint64_t>& value) -> std::optional<std::uint32_t> {
      return value ? std::optional{static_cast<std::uint32_t>(*value)} : std::nullopt;
    };
    for (const auto& value : {table->sandbox_uid, table->sandbox_gid, table->supervisor_uid, table->supervisor_gid}) {
      if (value && *value > 4'294'967'294ULL) return in_table(cat("an id must be between 1 and 4294967294, got ", *value));
    }
    process.sandbox_uid = id(table->sandbox_uid).value_or(process.sandbox_uid);
    process.sandbox_gid = id(table->sandbox_gid).value_or(process.sandbox_gid);
    process.supervisor_uid = id(table->supervisor_uid);
    process.supervisor_gid = id(table->supervisor_gid);
    process.sandbox_pids_limit = id(table->sandbox_pids_limit).value_or(process.sandbox_pids_limit);
    process.default_memory_limit = table->default_memory_limit.value_or(process.default_memory_limit);
    process.tmp_size_limit = table->tmp_size_limit.value_or(process.tmp_size_limit);
    process.workspace_size_limit = table->workspace_size_limit.value_or(process.workspace_size_limit);
    process.stop_timeout_secs = id(table->stop_timeout_secs).value_or(process.stop_timeout_secs);
    process.require_limits = table->require_limits.value_or(process.require_limits);
    process.allow_image_mismatch = table->allow_image_mismatch.value_or(process.allow_image_mismatch);
    out_.keep_on_shutdown = table->keep_on_shutdown.value_or(false);
    out_.process_endpoint = table->grpc_endpoint.value_or("");
    return table->sandbox_uid_range ? uid_range(*table->sandbox_uid_range) : absl::OkStatus();
  }

  absl::Status uid_range(const std::string& text) {
    constexpr std::uint64_t kLowest = 65'536;
    constexpr std::uint64_t kHighest = 2'147'483'647;
    constexpr std::uint64_t kSlot = 16;
    const auto dash = text.find('-');
    const auto first_id = parse_number("sandbox_uid_range", std::string_view{text}.substr(0, dash), kHighest);
    const auto last_id =
        dash == std::string::npos ? first_id : parse_number("sandbox_uid_range", std::string_view{text}.substr(dash + 1), kHighest);
    const bool fits = dash != std::string::npos && first_id.ok() && last_id.ok() && *first_id >= kLowest && *last_id >= *first_id &&
                      (*last_id - *first_id + 1) % kSlot == 0;
    if (!fits)
      return in_table(cat("sandbox_uid_range must be FIRST-LAST within 65536..2147483647, a multiple of 16 ids, got '", text, "'"));
    out_.process.sandbox_uid_range.first = static_cast<std::uint32_t>(*first_id);
    out_.process.sandbox_uid_range.last = static_cast<std::uint32_t>(*last_id);
    return absl::OkStatus();
  }

  static absl::Status in_table(std::string_view what) { return invalid(cat("invalid [openshell.drivers.process] table: ", what)); }

  const CommandLine& flags_;
  const Environment& environment_;
  const SettingsFile& file_;
  GatewayConfig out_;
};

}  // namespace

std::string Address::text() const { return ip.find(':') == std::string::npos ? cat(ip, ":", port) : cat("[", ip, "]:", port); }

bool Address::loopback() const {
  in_addr v4{};
  if (::inet_pton(AF_INET, ip.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return ip == "::1";
}

absl::StatusOr<Address> parse_address(std::string_view field, std::string_view text) {
  const auto wrong = [&] {
    return invalid(cat("invalid gateway config field ", field, ": '", text, "' is not an IP address with a port"));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong();
  std::string_view ip = text.substr(0, colon);
  const bool bracketed = ip.size() > 2 && ip.front() == '[' && ip.back() == ']';
  if (bracketed) ip = ip.substr(1, ip.size() - 2);
  if (bracketed != (ip.find(':') != std::string_view::npos) || !is_address(ip)) return wrong();
  auto port = parse_number("port", text.substr(colon + 1), 65'535);
  if (!port.ok() || text.substr(colon + 1).empty()) return wrong();
  return Address{std::string{ip}, static_cast<std::uint16_t>(*port)};
}

absl::StatusOr<GatewayConfig> merge(const CommandLine& flags, const Environment& environment, const SettingsFile& file,
                                    const Places& places) {
  return Merger{flags, environment, file, places}.run();
}

absl::StatusOr<GatewayConfig> load_config(const CommandLine& flags, const Environment& environment, unsigned effective_uid) {
  auto places = Places::find(environment, effective_uid);
  if (!places.ok()) return places.status();
  SettingsFile file;
  std::string path = flags.find("config").value_or("");
  // A broken symbolic link is there, and refused; only nothing at all is no file.
  struct stat info {};
  if (path.empty() && !places->config_file.empty() && ::lstat(places->config_file.c_str(), &info) == 0) path = places->config_file;
  if (!path.empty()) {
    auto read = read_settings_file(path);
    if (!read.ok()) return read.status();
    file = *std::move(read);
  }
  return merge(flags, environment, file, *places);
}

}  // namespace openshell::gateway
