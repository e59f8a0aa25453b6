#include "programs/gateway/command_line.hpp"

#include <algorithm>
#include <array>

#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

enum class Kind { kValue, kSwitch, kList };

struct Flag {
  std::string_view name;
  std::string_view variable;  // empty: none
  Kind kind;
  std::string_view help;
};

constexpr std::array kServeFlags{
    Flag{"config", "OPENSHELL_GATEWAY_CONFIG", Kind::kValue, "PATH  configuration file (default: gateway.toml of the user, where it is)"},
    Flag{"name", "OPENSHELL_GATEWAY_NAME", Kind::kValue, "NAME  how this gateway calls itself (default: openshell)"},
    Flag{"bind-address", "OPENSHELL_BIND_ADDRESS", Kind::kValue, "IP  address to listen on (default: 127.0.0.1)"},
    Flag{"bind-socket", "OPENSHELL_BIND_SOCKET", Kind::kValue, "PATH  Unix socket to listen on as well"},
    Flag{"port", "OPENSHELL_SERVER_PORT", Kind::kValue, "N  port for gRPC and HTTP (default: 17670; 0 takes a free one)"},
    Flag{"health-port", "OPENSHELL_HEALTH_PORT", Kind::kValue, "N  plain HTTP port for /healthz and /readyz (default: off)"},
    Flag{"metrics-port", "OPENSHELL_METRICS_PORT", Kind::kValue, "N  plain HTTP port for /metrics (default: off)"},
    Flag{"log-level", "OPENSHELL_LOG_LEVEL", Kind::kValue, "LEVEL  error, warn, info, debug or trace (default: info)"},
    Flag{"tls-cert", "OPENSHELL_TLS_CERT", Kind::kValue, "PATH  server certificate, PEM (default: the local bundle)"},
    Flag{"tls-key", "OPENSHELL_TLS_KEY", Kind::kValue, "PATH  its key"},
    Flag{"tls-client-ca", "OPENSHELL_TLS_CLIENT_CA", Kind::kValue, "PATH  CA of client certificates"},
    Flag{"db-url", "OPENSHELL_DB_URL", Kind::kValue, "URL  database (default: sqlite in the state directory)"},
    Flag{"compute-driver", "OPENSHELL_COMPUTE_DRIVER", Kind::kValue, "NAME  what runs sandboxes (default: found)"},
    Flag{"compute-driver-socket", "OPENSHELL_COMPUTE_DRIVER_SOCKET", Kind::kValue, "PATH  socket of an external driver"},
    Flag{"disable-tls", "OPENSHELL_DISABLE_TLS", Kind::kSwitch, "speak plaintext"},
    Flag{"enable-mtls-auth", "OPENSHELL_ENABLE_MTLS_AUTH", Kind::kValue,
         "BOOL  client certificates are users (default: where it makes sense)"},
    Flag{"oidc-issuer", "OPENSHELL_OIDC_ISSUER", Kind::kValue, "URL  OpenID Connect issuer whose tokens make users"},
    Flag{"oidc-audience", "OPENSHELL_OIDC_AUDIENCE", Kind::kValue, "NAME  audience that tokens must have (default: openshell-cli)"},
    Flag{"oidc-ca-bundle", "OPENSHELL_OIDC_CA_BUNDLE", Kind::kValue,
         "PATH  certificates trusted for the issuer besides the platform's, PEM"},
    Flag{"oidc-jwks-ttl", "OPENSHELL_OIDC_JWKS_TTL", Kind::kValue, "SECONDS  how long the issuer's keys are kept (default: 3600)"},
    Flag{"oidc-jwks-allowed-origins", "OPENSHELL_OIDC_JWKS_ALLOWED_ORIGINS", Kind::kValue,
         "LIST  origins where keys may lie besides the issuer's, separated by commas"},
    Flag{"oidc-dangerously-allow-insecure-http", "OPENSHELL_OIDC_DANGEROUSLY_ALLOW_INSECURE_HTTP", Kind::kValue,
         "BOOL  http:// for an issuer on a numeric loopback address (default: false)"},
    Flag{"oidc-roles-claim", "OPENSHELL_OIDC_ROLES_CLAIM", Kind::kValue, "PATH  claim with the roles (default: realm_access.roles)"},
    Flag{"oidc-admin-role", "OPENSHELL_OIDC_ADMIN_ROLE", Kind::kValue, "NAME  role of platform admins (default: openshell-admin)"},
    Flag{"oidc-user-role", "OPENSHELL_OIDC_USER_ROLE", Kind::kValue, "NAME  role of users (default: openshell-user)"},
    Flag{"oidc-scopes-claim", "OPENSHELL_OIDC_SCOPES_CLAIM", Kind::kValue,
         "PATH  claim with the scopes (default: scopes are not asked for)"},
    Flag{"grpc-rate-limit-requests", "OPENSHELL_GRPC_RATE_LIMIT_REQUESTS", Kind::kValue, "N  calls per window"},
    Flag{"grpc-rate-limit-window-seconds", "OPENSHELL_GRPC_RATE_LIMIT_WINDOW_SECONDS", Kind::kValue, "N  length of the window"},
    Flag{"server-san", "OPENSHELL_SERVER_SAN", Kind::kList, "NAME  name or address of this gateway; repeat or separate by commas"},
    Flag{"enable-loopback-service-http", "OPENSHELL_ENABLE_LOOPBACK_SERVICE_HTTP", Kind::kValue,
         "BOOL  serve sandbox services in plaintext on loopback (default: true)"},
    Flag{"enable-websocket-tunnel", "OPENSHELL_ENABLE_WEBSOCKET_TUNNEL", Kind::kValue, "BOOL  gRPC through a WebSocket (default: false)"},
};

constexpr std::array kCertificateFlags{
    Flag{"output-dir", "", Kind::kValue, "DIR  write the files below DIR (default: where the gateway looks for them)"},
    Flag{"server-san", "", Kind::kList, "NAME  further name or address of the server certificate"},
    Flag{"dry-run", "", Kind::kSwitch, "print certificates and keys, write nothing"},
    Flag{"no-client-copy", "", Kind::kSwitch, "do not copy the client bundle to the user's configuration"},
    Flag{"namespace", "POD_NAMESPACE", Kind::kValue, "NS  (Kubernetes)"},
    Flag{"server-secret-name", "", Kind::kValue, "N  (Kubernetes)"},
    Flag{"client-secret-name", "", Kind::kValue, "N  (Kubernetes)"},
    Flag{"jwt-secret-name", "", Kind::kValue, "N  (Kubernetes)"},
    Flag{"jwt-only", "", Kind::kSwitch, "(Kubernetes)"},
};

constexpr std::array kActorsFlags{
    Flag{"socket", "", Kind::kValue, "PATH  operator socket of the gateway (default: of the configuration)"},
    Flag{"config", "OPENSHELL_GATEWAY_CONFIG", Kind::kValue, "PATH  configuration file of the gateway"},
    Flag{"json", "", Kind::kSwitch, "print JSON; with --watch one line an event"},
    Flag{"watch", "", Kind::kSwitch, "go on printing what changes"},
};

constexpr std::array kPreflightFlags{Flag{"path", "", Kind::kValue, "PATH  configuration file to check"}};

template <std::size_t N>
const Flag* find_flag(const std::array<Flag, N>& flags, std::string_view name) {
  const auto found = std::find_if(flags.begin(), flags.end(), [&](const Flag& flag) { return flag.name == name; });
  return found == flags.end() ? nullptr : &*found;
}

const Flag* find_flag(Command command, std::string_view name) {
  switch (command) {
    case Command::kGenerateCerts:
      return find_flag(kCertificateFlags, name);
    case Command::kPreflight:
      return find_flag(kPreflightFlags, name);
    case Command::kActors:
    case Command::kOperatorUrl:
      return find_flag(kActorsFlags, name);
    default:
      return find_flag(kServeFlags, name);
  }
}

template <std::size_t N>
std::string describe(const std::array<Flag, N>& flags) {
  std::string out;
  for (const auto& flag : flags) {
    const std::string left = cat("  --", flag.name);
    out += cat(left, std::string(left.size() < 36 ? 36 - left.size() : 1, ' '), flag.help);
    if (!flag.variable.empty()) out += cat(" [", flag.variable, "]");
    out += "\n";
  }
  return out;
}

absl::Status usage(std::string_view what) {
  return absl::InvalidArgumentError(cat(what, "\nrun `openshell-gateway --help` for the flags"));
}

}  // namespace

absl::StatusOr<CommandLine> CommandLine::parse(const std::vector<std::string>& arguments, const Environment& environment) {
  CommandLine line;
  std::size_t i = 0;
  if (!arguments.empty() && arguments[0] == "generate-certs") {
    line.command_ = Command::kGenerateCerts;
    i = 1;
  } else if (!arguments.empty() && (arguments[0] == "actors" || arguments[0] == "operator-url")) {
    line.command_ = arguments[0] == "actors" ? Command::kActors : Command::kOperatorUrl;
    i = 1;
  } else if (arguments.size() >= 2 && arguments[0] == "config" && arguments[1] == "preflight") {
    line.command_ = Command::kPreflight;
    i = 2;
  }
  for (; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--" && line.command_ == Command::kPreflight) {
      line.rest_.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (argument == "--help" || argument == "-h" || argument == "--version" || argument == "-V") {
      line.command_ = argument == "--help" || argument == "-h" ? Command::kHelp : Command::kVersion;
      return line;
    }
    if (!argument.starts_with("--")) return usage(cat("unexpected argument '", argument, "'"));
    const auto equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const Flag* flag = find_flag(line.command_, name);
    if (flag == nullptr) return usage(cat("unknown flag '--", name, "'"));
    std::string value;
    if (flag->kind == Kind::kSwitch) {
      value = equals == std::string::npos ? "true" : argument.substr(equals + 1);
      if (value != "true" && value != "false") return usage(cat("--", name, " takes no value, or true or false; got '", value, "'"));
    } else if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return usage(cat("--", name, " needs a value"));
    }
    auto& values = line.values_[name];
    if (!values.empty() && flag->kind != Kind::kList) return usage(cat("--", name, " is given twice"));
    values.push_back(value);
  }
  const auto from_environment = [&](const auto& flags) {
    for (const auto& flag : flags) {
      if (flag.variable.empty() || line.values_.contains(flag.name)) continue;
      if (auto value = environment.find(flag.variable)) line.values_[std::string{flag.name}] = {*std::move(value)};
    }
  };
  if (line.command_ == Command::kServe) from_environment(kServeFlags);
  if (line.command_ == Command::kGenerateCerts) from_environment(kCertificateFlags);
  if (line.command_ == Command::kActors || line.command_ == Command::kOperatorUrl) from_environment(kActorsFlags);
  return line;
}

std::optional<std::string> CommandLine::find(std::string_view flag) const {
  const auto found = values_.find(flag);
  if (found == values_.end()) return std::nullopt;
  return found->second.front();
}

std::vector<std::string> CommandLine::list(std::string_view flag) const {
  std::vector<std::string> out;
  const auto found = values_.find(flag);
  if (found == values_.end()) return out;
  for (std::string_view rest : found->second) {
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      if (comma != 0) out.emplace_back(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    }
  }
  return out;
}

std::string help_text() {
  return cat(
      "openshell-gateway: control plane of OpenShell\n\nUsage:\n  openshell-gateway [flags]                 serve\n  openshell-gateway "
      "generate-certs [flags]  make local "
      "certificates and keys\n  openshell-gateway config preflight [--path P | -- <flags>]\n                                            "
      "check a configuration, start "
      "nothing\n  openshell-gateway actors [--watch] [--json]  what the actors of a running gateway do\n  openshell-gateway operator-url   "
      "    "
      "       a link to its pages, for a browser on this host\n\nFlags (a flag wins over its variable, both win over the file):\n",
      describe(kServeFlags), "\ngenerate-certs:\n", describe(kCertificateFlags), "\nactors, operator-url:\n", describe(kActorsFlags));
}

}  // namespace openshell::gateway
