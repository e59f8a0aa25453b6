#include "policy/risk.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <set>
#include <span>

#include "policy/glob.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;
using text::upper;

constexpr std::array<std::string_view, 3> kReadMethods{"GET", "HEAD", "OPTIONS"};
constexpr std::array<std::string_view, 7> kAllMethods{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"};

/// Programs whose traffic means nothing to somebody who reads HTTP. Every other one is taken for a program that speaks HTTP and can carry
/// data out.
constexpr std::array<std::string_view, 3> kBypassing{"/usr/bin/git", "/usr/bin/nc", "/usr/bin/ssh"};

// A pattern that could be one of them counts as one.
bool bypasses(const std::string& binary) {
  const auto pattern = Glob::compile(binary, GlobKind::binary);
  return std::any_of(kBypassing.begin(), kBypassing.end(),
                     [&](std::string_view known) { return binary == known || (pattern.ok() && pattern->matches(known)); });
}

/// What is known of one endpoint.
struct EndpointFacts {
  bool inspected = false;
  std::set<std::string> methods;
  bool writes = true;
};

void add(std::set<std::string>& into, auto list) {
  for (const auto& one : list) into.emplace(one);
}

void add_preset(std::set<std::string>& into, const pb::NetworkEndpoint& endpoint, Protocol protocol,
                std::span<const std::string_view> every) {
  for (const auto word : preset_words(endpoint, protocol)) word == "*" ? add(into, every) : add(into, std::array{upper(word)});
}

std::set<std::string> http_methods(const pb::NetworkEndpoint& endpoint, Protocol protocol) {
  std::set<std::string> out;
  if (endpoint.rules_size() == 0) {
    add_preset(out, endpoint, protocol, kAllMethods);
    if (protocol == Protocol::websocket && endpoint.access() == pb::NETWORK_ACCESS_PRESET_FULL) out.emplace("WEBSOCKET_TEXT");
  }
  for (const auto& rule : endpoint.rules()) {
    const auto& method = rule.allow().method();
    if (method == "*") add(out, kAllMethods);
    if (!method.empty() && method != "*") out.insert(upper(method));
    if (!rule.allow().operation_type().empty()) out.insert(upper(rule.allow().operation_type()));  // messages over a WebSocket
  }
  return out;
}

std::set<std::string> graphql_operations(const pb::NetworkEndpoint& endpoint) {
  constexpr std::array<std::string_view, 3> kAll{"QUERY", "MUTATION", "SUBSCRIPTION"};
  std::set<std::string> out;
  if (endpoint.rules_size() == 0) add_preset(out, endpoint, Protocol::graphql, kAll);
  for (const auto& rule : endpoint.rules()) {
    const auto type = upper(rule.allow().operation_type());
    if (type == "*") add(out, kAll);
    if (!type.empty() && type != "*") out.insert(type);
  }
  return out;
}

std::set<std::string> rpc_methods(const pb::NetworkEndpoint& endpoint) {
  std::set<std::string> out;
  if (endpoint.access() == pb::NETWORK_ACCESS_PRESET_FULL || endpoint.mcp().allow_all_known_mcp_methods()) out.emplace("*");
  for (const auto& rule : endpoint.rules()) {
    const auto tool = rule.allow().params().find("name");
    if (tool == rule.allow().params().end()) {
      if (!rule.allow().method().empty()) out.insert(rule.allow().method());
      continue;
    }
    for (const auto& name : patterns_of(tool->second)) out.insert(cat("tools/call ", name));
  }
  return out;
}

EndpointFacts facts_of(const pb::NetworkEndpoint& endpoint) {
  EndpointFacts out;
  const auto protocol = parse_protocol(endpoint.protocol()).value_or(Protocol::none);
  out.inspected = is_inspected(protocol) && endpoint.tls() != pb::NETWORK_TLS_MODE_SKIP &&
                  endpoint.enforcement() == pb::NETWORK_ENFORCEMENT_MODE_ENFORCE;
  if (!out.inspected) return out;
  if (protocol == Protocol::graphql) {
    out.methods = graphql_operations(endpoint);
    out.writes = out.methods.empty() || out.methods != std::set<std::string>{"QUERY"};
  } else if (protocol == Protocol::json_rpc || protocol == Protocol::mcp) {
    out.methods = rpc_methods(endpoint);
  } else {
    out.methods = http_methods(endpoint, protocol);
    const bool reads = !out.methods.empty() && std::all_of(out.methods.begin(), out.methods.end(), [](const std::string& method) {
      return std::find(kReadMethods.begin(), kReadMethods.end(), method) != kReadMethods.end();
    });
    out.writes = protocol != Protocol::rest || !reads;
  }
  return out;
}

bool link_local(std::string_view host) {
  if (host == "metadata.google.internal") return true;
  const auto block = parse_address_block(host);
  if (!block.ok() || block->prefix != 128) return false;
  static const auto kFour = *parse_address_block("169.254.0.0/16");
  static const auto kSix = *parse_address_block("fe80::/10");
  return kFour.contains(block->network) || kSix.contains(block->network);
}

enum class Category : std::uint8_t { link_local_reach, l7_bypass_credentialed, credential_reach_expansion, capability_expansion };

std::string_view name_of(Category category) {
  constexpr std::array<std::string_view, 4> kNames{"link_local_reach", "l7_bypass_credentialed", "credential_reach_expansion",
                                                   "capability_expansion"};
  return kNames.at(static_cast<std::size_t>(category));
}

struct Path {
  Category category{};
  std::string binary, place, method;
  friend auto operator<=>(const Path&, const Path&) = default;
};
using Paths = std::set<Path>;

/// Lists the paths of one policy.
class PathFinder {
 public:
  explicit PathFinder(const CredentialPlaces& credentials) : unbound_{credentials.unbound} {
    for (const auto& host : credentials.hosts) {
      const auto pattern = host_pattern(host);
      everywhere_ = everywhere_ || !pattern.ok();  // one that can not be read is taken for any
      if (pattern.ok()) hosts_.push_back(*pattern);
    }
  }

  absl::StatusOr<Paths> find(const pb::SandboxPolicy& policy) {
    Paths out;
    std::size_t seen = 0;
    for (const auto& [key, rule] : policy.network_policies()) {
      std::vector<std::string> binaries;
      for (const auto& binary : rule.binaries()) binaries.push_back(binary.path());
      if (binaries.empty()) binaries.emplace_back("*");  // any program: one that nobody knows
      for (const auto& endpoint : rule.endpoints()) {
        const auto ports = endpoint.ports().empty() ? std::vector<std::uint32_t>{endpoint.port()}
                                                    : std::vector<std::uint32_t>{endpoint.ports().begin(), endpoint.ports().end()};
        seen += binaries.size() * ports.size();
        if (seen > kMaxRiskPaths) return absl::ResourceExhaustedError("the policy has more paths than the prover looks at");
        add_paths(endpoint, ports, binaries, out);
      }
    }
    return out;
  }

 private:
  static absl::StatusOr<Glob> host_pattern(const std::string& host) {
    auto name = text::lower(text::trim(host));
    if (name.ends_with('.')) name.pop_back();
    return Glob::compile(name, GlobKind::host);
  }

  [[nodiscard]] bool has_credential(const pb::NetworkEndpoint& endpoint, const EndpointFacts& facts) const {
    if (everywhere_) return true;
    const bool exact = !endpoint.host().empty() && endpoint.host().find('*') == std::string::npos;
    if (unbound_ && exact && facts.inspected) return true;
    if (endpoint.host().empty()) return !hosts_.empty();  // addresses: no name says that it is another place
    const auto own = host_pattern(endpoint.host());
    return !own.ok() || std::any_of(hosts_.begin(), hosts_.end(), [&](const Glob& host) { return Glob::overlap(host, *own); });
  }

  void add_paths(const pb::NetworkEndpoint& endpoint, const std::vector<std::uint32_t>& ports, const std::vector<std::string>& binaries,
                 Paths& out) const {
    const auto facts = facts_of(endpoint);
    const bool local = link_local(text::lower(endpoint.host()));
    const bool credential = local || has_credential(endpoint, facts);
    if (!credential) return;
    for (const auto& binary : binaries) {
      const bool bypass = bypasses(binary);
      if (facts.inspected && !facts.writes && !bypass) continue;  // it can only read
      for (const auto port : ports) {
        const auto place = cat(text::lower(endpoint.host()), ":", port);
        if (local || bypass) {
          out.insert({local ? Category::link_local_reach : Category::l7_bypass_credentialed, binary, place, ""});
          continue;
        }
        out.insert({Category::credential_reach_expansion, binary, place, ""});
        for (const auto& method : facts.methods) out.insert({Category::capability_expansion, binary, place, method});
      }
    }
  }

  std::vector<Glob> hosts_;
  bool unbound_ = false;
  bool everywhere_ = false;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> new_findings(const pb::SandboxPolicy& current, const pb::SandboxPolicy& candidate,
                                                      const CredentialPlaces& credentials) {
  PathFinder finder{credentials};
  const auto before = finder.find(current);
  const auto after = finder.find(candidate);
  if (!after.ok()) return after.status();
  Paths fresh;
  for (const auto& path : *after) {
    if (!before.ok() || !before->contains(path)) fresh.insert(path);
  }
  std::vector<std::string> out;
  for (const auto& path : fresh) {
    const bool capability = path.category == Category::capability_expansion;
    if (capability && fresh.contains({Category::credential_reach_expansion, path.binary, path.place, ""})) continue;  // said already
    out.push_back(cat(name_of(path.category), ": ", capability ? cat(path.method, " on ") : "", path.place, " via ", path.binary));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string describe_findings(const std::vector<std::string>& findings) {
  if (findings.empty()) return kNoNewFindings;
  auto out = cat("prover: ", findings.size(), " new finding", findings.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(findings.size(), kMaxShownFindings); ++i) out += cat("\n  ", findings[i]);
  if (findings.size() > kMaxShownFindings) out += cat("\n  and ", findings.size() - kMaxShownFindings, " more");
  return out;
}

}  // namespace openshell::policy
