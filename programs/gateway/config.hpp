// The gateway's configuration after everything is merged, derived and checked. What is in here can be relied on; what is wrong never gets
// here.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/tokens.hpp"
#include "drivers/process/process_driver.hpp"
#include "messages/secret.hpp"
#include "observability/log.hpp"
#include "programs/gateway/command_line.hpp"
#include "programs/gateway/oidc_config.hpp"
#include "programs/gateway/places.hpp"
#include "programs/gateway/settings_file.hpp"

namespace openshell::gateway {

inline constexpr std::string_view kInterfaceVersion = "0.1.5";
inline constexpr std::string_view kOurVersion = "0.1.0";
constexpr std::uint16_t kDefaultPort = 17670;

struct Address {
  std::string ip;
  std::uint16_t port = 0;
  [[nodiscard]] std::string text() const;  ///< "127.0.0.1:80", "[::1]:80"
  [[nodiscard]] bool loopback() const;
};
/// IP literal and port; INVALID_ARGUMENT names the field.
absl::StatusOr<Address> parse_address(std::string_view field, std::string_view text);

struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string client_ca;  ///< empty: none
};

struct GatewayConfig {
  Places places;
  std::string name = "openshell";
  Address bind;
  std::optional<Address> health;
  std::optional<Address> metrics;
  std::string operator_socket;
  std::optional<Address> operator_bind;
  log::Level log_level = log::Level::kInfo;
  std::string database_url;
  std::string compute_driver;
  std::optional<TlsFiles> tls;  ///< absent: plaintext
  std::string guest_tls_ca;     ///< empty without TLS
  bool mtls_users = false;
  std::optional<OidcConfig> oidc;
  bool operators = false;
  bool allow_unauthenticated_users = false;
  std::optional<api::TokenConfig> tokens;
  std::uint64_t rate_limit_requests = 0;  ///< 0: off
  std::uint64_t rate_limit_window_seconds = 0;
  CredentialStorageTable credential_storage;
  bool config_push = true;
  std::string policy_validation_failure_mode = "fail_closed";
  std::string reported_version{kInterfaceVersion};
  std::uint32_t gateway_outage_limit_secs = 120;  ///< 0: unlimited
  drivers::SupervisorSettings supervisor;
  drivers::ProcessDriverOptions process;  ///< without endpoint and CA, which are known once the port is bound
  std::string process_endpoint;           ///< operator's own endpoint for supervisors; empty: derived
  bool keep_on_shutdown = false;
  std::uint64_t ssh_session_ttl_secs = 86'400;  ///< 0: sessions never expire
  std::vector<std::string> warnings;
};

/// Everything up to and including the cross-checks of the start; reads certificates and the local bundle, writes nothing.
absl::StatusOr<GatewayConfig> load_config(const CommandLine& flags, const Environment& environment, unsigned effective_uid);
/// Flags and file to a configuration; separate so that a test needs no file.
absl::StatusOr<GatewayConfig> merge(const CommandLine& flags, const Environment& environment, const SettingsFile& file,
                                    const Places& places);

}  // namespace openshell::gateway
