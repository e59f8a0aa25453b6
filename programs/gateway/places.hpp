// Where the gateway's files lie.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace openshell::gateway {

/// The environment of the process as a value, so that tests give their own. A variable set to nothing counts as unset.
class Environment {
 public:
  explicit Environment(std::map<std::string, std::string, std::less<>> variables) : variables_{std::move(variables)} {}
  static Environment of_process();
  [[nodiscard]] std::optional<std::string> find(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

/// As root the system's directories, else those of the user. OPENSHELL_STATE_DIR and OPENSHELL_RUN_DIR replace them for both. All absolute.
struct Places {
  std::string state;        ///< kept: database, certificates, keys, drivers' state
  std::string run;          ///< one boot: sockets. Short, since a socket path in it has at most 107 bytes
  std::string config_file;  ///< where gateway.toml is looked for; empty: nowhere (root without HOME)
  std::string tls;          ///< local certificates: OPENSHELL_LOCAL_TLS_DIR, else `<state>/tls`
  std::string user_config;  ///< `$XDG_CONFIG_HOME/openshell`; empty: no home

  /// INVALID_ARGUMENT for a relative override; FAILED_PRECONDITION `HOME is not set` where it is needed.
  static absl::StatusOr<Places> find(const Environment& environment, unsigned effective_uid);
  /// Makes `state`, `run` and `<state>/gateway`, `<run>/gateway`; checks their owner. As root the bases are 0711, the rest 0700.
  [[nodiscard]] absl::Status make(unsigned effective_uid) const;
};

}  // namespace openshell::gateway
