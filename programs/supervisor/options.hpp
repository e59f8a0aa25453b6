#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isolation/boundary/control.hpp"

namespace openshell::supervisor {

/// The name of the built-in isolation backend; a descriptor of any other is refused.
inline constexpr const char* kBuiltInBackend = "openshell-sandbox";

/// Everything that the command line and the environment say.
struct Options {
  std::string sandbox_id;
  std::string sandbox_name;
  std::string endpoint;
  std::string descriptor_file;
  std::string auth_bundle_file;
  std::string admitted_backend;  ///< OPENSHELL_ADMITTED_ISOLATION_BACKEND, from the driver
  std::string gateway_ca;        ///< OPENSHELL_TLS_CA
  std::string tls_server_name;   ///< OPENSHELL_GATEWAY_TLS_SERVER_NAME
  std::string log_level = "warn";
  std::string push_level = "info";
  std::string state_dir = "/run/openshell";
  std::string log_dir = "/var/log";
  std::string ocsf_log_dir;  ///< empty: log_dir
  std::string main_exit_marker;
  std::string health_socket;
  std::string ssh_socket;  ///< path, or `@name`; empty: no SSH server
  std::optional<int> parent_liveness_fd;
  std::optional<std::string> workdir;
  std::uint64_t timeout_secs = 0;
  bool interactive = false;
  bool await_attachment = false;
  bool ephemeral = false;            ///< the sandbox is only there for its main process: nothing is served after its end
  std::vector<std::string> command;  ///< empty: the image's login shell
  std::chrono::seconds poll_interval{10};
  std::chrono::seconds denial_flush_interval{10};
  std::chrono::seconds outage_limit{120};  ///< 0: unlimited
  std::string additional_ca_bundle;        ///< path
  std::vector<std::string> resolvers;
};

/// The main command that a driver hands over, with the flags that go with it.
struct MainProcessSpec {
  std::vector<std::string> command;
  bool tty = false;
  bool await_attachment = false;
  bool ephemeral = false;
};

using Environment = std::function<std::optional<std::string>(const char* name)>;

/// InvalidArgument with the flag and the reason. A flag beats its environment variable.
absl::StatusOr<Options> parse_options(const std::vector<std::string>& arguments, const Environment& environment);

/// OPENSHELL_MAIN_PROCESS_SPEC: JSON, or `base64url:` and JSON.
absl::StatusOr<MainProcessSpec> parse_main_process_spec(const std::string& text);

/// "ADDRESS:PORT" with an IP literal ("[v6]:port").
absl::Status check_resolver(const std::string& text);

/// What is to run, for `start_agent`.
boundary::AgentSpec agent_spec(const Options& options);

}  // namespace openshell::supervisor
