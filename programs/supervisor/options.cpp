#include "programs/supervisor/options.hpp"

#include <boost/json.hpp>

#include <charconv>
#include <set>

#include "egress/ip_address.hpp"

namespace openshell::supervisor {
namespace {

constexpr std::size_t kMaxResolvers = 8;
constexpr std::size_t kMaxSpecBytes = 1'048'576;
constexpr std::uint64_t kMaxIntervalSecs = 3'600;

absl::Status bad(const std::string& flag, const std::string& why) { return absl::InvalidArgumentError(flag + ": " + why); }

absl::StatusOr<std::uint64_t> number(const std::string& flag, const std::string& text, std::uint64_t lowest, std::uint64_t highest) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < lowest || value > highest) {
    return bad(flag, "'" + text + "' is not a number from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value;
}

/// The two interval variables: anything but a number in range counts as the default.
std::chrono::seconds interval_or_default(const std::optional<std::string>& text) {
  if (!text) return std::chrono::seconds{10};
  auto value = number("", *text, 1, kMaxIntervalSecs);
  return std::chrono::seconds{value.ok() ? *value : 10};
}

absl::StatusOr<std::string> decode_base64url(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    int value;
    if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '-') {
      value = 62;
    } else if (c == '_') {
      value = 63;
    } else {
      return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC base64url: unexpected character");
    }
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>((bits >> count) & 0xff);
    }
  }
  if (count >= 6) return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC base64url: truncated");
  return out;
}

absl::StatusOr<MainProcessSpec> read_spec(const boost::json::object& object) {
  MainProcessSpec spec;
  const auto* version = object.if_contains("version");
  if (!version || !version->is_int64()) return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC: version must be a number");
  if (version->as_int64() != 1)
    return absl::InvalidArgumentError("unsupported OPENSHELL_MAIN_PROCESS_SPEC version " + std::to_string(version->as_int64()));
  for (const auto& [key, value] : object) {
    if (key == "version") continue;
    if (key == "command" && value.is_array()) {
      for (const auto& word : value.as_array()) {
        if (!word.is_string()) return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC: command must hold strings");
        spec.command.emplace_back(word.as_string());
      }
    } else if (key == "tty" && value.is_bool()) {
      spec.tty = value.as_bool();
    } else if (key == "await_main_process_attachment" && value.is_bool()) {
      spec.await_attachment = value.as_bool();
    } else if (key == "ephemeral" && value.is_bool()) {
      spec.ephemeral = value.as_bool();
    } else {
      return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC: unexpected '" + std::string{key} + "'");
    }
  }
  if (!object.contains("command") || !object.contains("tty"))
    return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC: command and tty are required");
  if (!spec.command.empty() && spec.command.front().empty())
    return absl::InvalidArgumentError("OPENSHELL_MAIN_PROCESS_SPEC command must not be empty");
  return spec;
}

/// Flags that other releases had, or that wait for a later part: refused, never ignored.
const std::set<std::string>& refused_flags() {
  static const std::set<std::string> flags{"--mode",
                                           "--proxy-uid",
                                           "--proxy-gid",
                                           "--health-check",
                                           "--inference-routes",
                                           "--isolation-backends-file",
                                           "--boundary-launch-file",
                                           "--upstream-proxy"};
  return flags;
}

}  // namespace

absl::StatusOr<MainProcessSpec> parse_main_process_spec(const std::string& text) {
  constexpr std::string_view kPrefix = "base64url:";
  std::string json = text;
  if (text.starts_with(kPrefix)) {
    auto decoded = decode_base64url(std::string_view{text}.substr(kPrefix.size()));
    if (!decoded.ok()) return decoded.status();
    json = *std::move(decoded);
  }
  if (json.size() > kMaxSpecBytes) return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC: too long");
  boost::json::error_code error;
  const auto value = boost::json::parse(json, error);
  if (error || !value.is_object()) return absl::InvalidArgumentError("invalid OPENSHELL_MAIN_PROCESS_SPEC: not a JSON object");
  return read_spec(value.as_object());
}

absl::Status check_resolver(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return bad("--resolver", "'" + text + "' has no port");
  auto host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  auto address = egress::IpAddress::parse(host);
  if (!address.ok() || address->is_v4() == bracketed) return bad("--resolver", "'" + text + "' is not ADDRESS:PORT");
  return number("--resolver", text.substr(colon + 1), 1, 65'535).status();
}

absl::StatusOr<Options> parse_options(const std::vector<std::string>& arguments, const Environment& environment) {
  Options out;
  const auto from_environment = [&](const char* name, std::string& to) {
    if (auto value = environment(name)) to = *value;
  };
  from_environment("OPENSHELL_SANDBOX_ID", out.sandbox_id);
  from_environment("OPENSHELL_SANDBOX", out.sandbox_name);
  from_environment("OPENSHELL_ENDPOINT", out.endpoint);
  from_environment("OPENSHELL_LOG_LEVEL", out.log_level);
  from_environment("OPENSHELL_LOG_PUSH_LEVEL", out.push_level);
  from_environment("OPENSHELL_TLS_CA", out.gateway_ca);
  from_environment("OPENSHELL_GATEWAY_TLS_SERVER_NAME", out.tls_server_name);
  from_environment("OPENSHELL_ADMITTED_ISOLATION_BACKEND", out.admitted_backend);
  from_environment("OPENSHELL_HEALTH_SOCKET_PATH", out.health_socket);
  out.poll_interval = interval_or_default(environment("OPENSHELL_POLICY_POLL_INTERVAL_SECS"));
  out.denial_flush_interval = interval_or_default(environment("OPENSHELL_DENIAL_FLUSH_INTERVAL_SECS"));

  from_environment("OPENSHELL_SSH_SOCKET_PATH", out.ssh_socket);
  const std::vector<std::pair<std::string, std::string*>> texts{{"--sandbox-id", &out.sandbox_id},
                                                                {"--sandbox", &out.sandbox_name},
                                                                {"--openshell-endpoint", &out.endpoint},
                                                                {"--backend-descriptor-file", &out.descriptor_file},
                                                                {"--auth-bundle-file", &out.auth_bundle_file},
                                                                {"--log-level", &out.log_level},
                                                                {"--state-dir", &out.state_dir},
                                                                {"--log-dir", &out.log_dir},
                                                                {"--ocsf-log-dir", &out.ocsf_log_dir},
                                                                {"--main-exit-marker", &out.main_exit_marker},
                                                                {"--health-socket-path", &out.health_socket},
                                                                {"--additional-ca-bundle", &out.additional_ca_bundle},
                                                                {"--ssh-socket-path", &out.ssh_socket}};
  std::vector<std::string> trailing;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string flag = arguments[i];
    if (flag == "--") {
      trailing.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!flag.starts_with('-')) {
      trailing.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    if (flag == "--interactive" || flag == "-i") {
      out.interactive = true;
      continue;
    }
    const auto bare = flag.substr(0, flag.find('='));
    if (bare == "--listen" || bare == "--tls-dir") return absl::InvalidArgumentError(bare + " is only valid with --role=network-proxy");
    if (bare == "--policy-rules" || bare == "--policy-data")
      return absl::InvalidArgumentError(
          "Gateway-managed workloads require gateway policy admission; use the network-proxy role for local policy files");
    if (refused_flags().count(bare) != 0) return bad(flag, "is not supported by this supervisor");
    std::string value;
    if (const auto equals = flag.find('='); equals != std::string::npos) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return bad(flag, "needs a value");
    }
    bool known = false;
    for (const auto& [name, to] : texts) {
      if (flag != name) continue;
      *to = value;
      known = true;
    }
    if (known) continue;
    if (flag == "--role") {
      if (value != "isolation-backend") return bad(flag, "'" + value + "' is not supported: isolation-backend or network-proxy");
    } else if (flag == "--workdir" || flag == "-w") {
      out.workdir = value;
    } else if (flag == "--timeout" || flag == "-t") {
      auto seconds = number(flag, value, 0, UINT32_MAX);
      if (!seconds.ok()) return seconds.status();
      out.timeout_secs = *seconds;
    } else if (flag == "--parent-liveness-fd") {
      auto fd = number(flag, value, 3, 1 << 20);
      if (!fd.ok()) return fd.status();
      out.parent_liveness_fd = static_cast<int>(*fd);
    } else if (flag == "--poll-interval-secs" || flag == "--denial-flush-interval-secs") {
      auto seconds = number(flag, value, 1, kMaxIntervalSecs);
      if (!seconds.ok()) return seconds.status();
      (flag == "--poll-interval-secs" ? out.poll_interval : out.denial_flush_interval) = std::chrono::seconds{*seconds};
    } else if (flag == "--gateway-outage-limit-secs") {
      auto seconds = number(flag, value, 0, UINT32_MAX);
      if (!seconds.ok()) return seconds.status();
      out.outage_limit = std::chrono::seconds{*seconds};
    } else if (flag == "--resolver") {
      if (auto status = check_resolver(value); !status.ok()) return status;
      if (out.resolvers.size() == kMaxResolvers) return bad(flag, "may be given 8 times at most");
      out.resolvers.push_back(value);
    } else {
      return bad(flag, "is not a flag of openshell-supervisor");
    }
  }

  if (!trailing.empty()) {
    out.command = trailing;
  } else if (auto text = environment("OPENSHELL_MAIN_PROCESS_SPEC")) {
    auto spec = parse_main_process_spec(*text);
    if (!spec.ok()) return spec.status();
    out.command = spec->command;
    out.interactive = spec->tty;
    out.await_attachment = spec->await_attachment;
    out.ephemeral = spec->ephemeral;
  } else {
    out.interactive = true;  // the image's login shell
  }
  if (out.sandbox_id.empty()) return absl::InvalidArgumentError("Sandbox ID is required for configuration admission");
  if (out.sandbox_name.empty()) return absl::InvalidArgumentError("--sandbox (or OPENSHELL_SANDBOX) is required");
  if (out.endpoint.empty()) return absl::InvalidArgumentError("--openshell-endpoint (or OPENSHELL_ENDPOINT) is required");
  if (out.descriptor_file.empty()) return absl::InvalidArgumentError("--backend-descriptor-file is required");
  if (out.auth_bundle_file.empty()) return absl::InvalidArgumentError("--auth-bundle-file is required");
  if (out.admitted_backend.empty()) return absl::InvalidArgumentError("runtime descriptor supplied without an admitted isolation backend");
  if (out.admitted_backend != kBuiltInBackend)
    return absl::InvalidArgumentError("the admitted isolation backend '" + out.admitted_backend + "' is not " + kBuiltInBackend);
  if (out.ocsf_log_dir.empty()) out.ocsf_log_dir = out.log_dir;
  return out;
}

boundary::AgentSpec agent_spec(const Options& options) {
  boundary::AgentSpec spec;
  if (!options.command.empty()) {
    spec.program = options.command.front();
    spec.args.assign(options.command.begin() + 1, options.command.end());
  }
  spec.workdir = options.workdir;
  spec.timeout_secs = options.timeout_secs;
  spec.interactive = options.interactive;
  return spec;
}

}  // namespace openshell::supervisor
