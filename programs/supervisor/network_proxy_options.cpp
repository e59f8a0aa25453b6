#include "programs/supervisor/network_proxy_options.hpp"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace openshell::supervisor {
namespace {

constexpr std::string_view kRole = "--role";
constexpr std::string_view kNetworkProxy = "network-proxy";
constexpr std::size_t kMaxResolvers = 8;
constexpr auto kNoWorkload = "--role=network-proxy does not launch or manage a workload";
constexpr auto kNoSandbox = "--role=network-proxy does not use sandbox identity, gateway, runtime, or process-control arguments";
constexpr std::array<std::string_view, 6> kWorkloadFlags{"--workdir", "-w", "--timeout", "-t", "--interactive", "-i"};
constexpr std::array<std::string_view, 14> kSandboxFlags{"--sandbox-id",
                                                         "--sandbox",
                                                         "--openshell-endpoint",
                                                         "--backend-descriptor-file",
                                                         "--auth-bundle-file",
                                                         "--state-dir",
                                                         "--log-dir",
                                                         "--ocsf-log-dir",
                                                         "--main-exit-marker",
                                                         "--health-socket-path",
                                                         "--ssh-socket-path",
                                                         "--parent-liveness-fd",
                                                         "--poll-interval-secs",
                                                         "--gateway-outage-limit-secs"};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& all, std::string_view flag) {
  for (const auto one : all) {
    if (one == flag) return true;
  }
  return false;
}

absl::Status bad(std::string_view flag, std::string_view why) { return absl::InvalidArgumentError(fmt::format("{}: {}", flag, why)); }

absl::Status read_listen(const std::string& text, NetworkProxyOptions& out) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return bad("--listen", fmt::format("'{}' is not ADDRESS:PORT", text));
  auto host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const auto address = egress::IpAddress::parse(host);
  std::uint16_t port = 0;
  const auto* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (!address.ok() || address->is_v4() == bracketed || error != std::errc{} || read != end)
    return bad("--listen", fmt::format("'{}' is not ADDRESS:PORT", text));
  if (!address->is_loopback()) return absl::InvalidArgumentError(fmt::format("Proxy http_addr must be loopback-only: {}", text));
  out.address = *address;
  out.port = Port{port};
  return absl::OkStatus();
}

/// A flag and its value, given as one word or as two.
struct Flag {
  std::string name, value;
};

absl::StatusOr<Flag> next_flag(const std::vector<std::string>& arguments, std::size_t& at) {
  Flag out{arguments[at], {}};
  if (!out.name.starts_with('-') || out.name == "--") return absl::InvalidArgumentError(kNoWorkload);
  const auto equals = out.name.find('=');
  const auto bare = out.name.substr(0, equals);
  if (is_one_of(kWorkloadFlags, bare)) return absl::InvalidArgumentError(kNoWorkload);
  if (is_one_of(kSandboxFlags, bare)) return absl::InvalidArgumentError(kNoSandbox);
  if (equals != std::string::npos) {
    out.value = out.name.substr(equals + 1);
    out.name = bare;
  } else if (at + 1 < arguments.size()) {
    out.value = arguments[++at];
  } else {
    return bad(out.name, "needs a value");
  }
  return out;
}

}  // namespace

bool is_network_proxy(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i] == "--role=network-proxy") return true;
    if (arguments[i] == kRole && i + 1 < arguments.size() && arguments[i + 1] == kNetworkProxy) return true;
  }
  return false;
}

absl::StatusOr<NetworkProxyOptions> parse_network_proxy_options(const std::vector<std::string>& arguments, const Environment& environment) {
  NetworkProxyOptions out;
  std::string listen, rules = environment("OPENSHELL_POLICY_RULES").value_or("");
  out.policy_data = environment("OPENSHELL_POLICY_DATA").value_or("");
  out.log_level = environment("OPENSHELL_LOG_LEVEL").value_or(out.log_level);
  const std::vector<std::pair<std::string_view, std::string*>> texts{{"--listen", &listen},
                                                                     {"--tls-dir", &out.tls_dir},
                                                                     {"--policy-rules", &rules},
                                                                     {"--policy-data", &out.policy_data},
                                                                     {"--additional-ca-bundle", &out.additional_ca_bundle},
                                                                     {"--log-level", &out.log_level}};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto flag = next_flag(arguments, i);
    if (!flag.ok()) return flag.status();
    bool known = flag->name == kRole;
    for (const auto& [name, to] : texts) {
      if (flag->name != name) continue;
      *to = flag->value;
      known = true;
    }
    if (flag->name == "--resolver") {
      if (auto status = check_resolver(flag->value); !status.ok()) return status;
      if (out.resolvers.size() == kMaxResolvers) return bad(flag->name, "may be given 8 times at most");
      out.resolvers.push_back(flag->value);
      known = true;
    }
    if (!known) return bad(flag->name, "is not a flag of --role=network-proxy");
  }
  if (!listen.empty()) {
    if (auto status = read_listen(listen, out); !status.ok()) return status;
  }
  if (!rules.empty())
    return bad("--policy-rules",
               "rules of one's own are not evaluated by this supervisor yet; without it the built-in rules decide over --policy-data");
  if (out.policy_data.empty()) return absl::InvalidArgumentError("--policy-data is required for --role=network-proxy");
  return out;
}

}  // namespace openshell::supervisor
