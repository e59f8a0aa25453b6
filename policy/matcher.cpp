#include "policy/matcher.hpp"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <arpa/inet.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "policy/rank.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

absl::string_view key_of(std::string_view view) { return {view.data(), view.size()}; }

// The programs that a rule admits.
struct Binaries {
  std::vector<std::string> few;           // up to kFew plain paths
  absl::flat_hash_set<std::string> many;  // otherwise
  std::vector<Glob> globs;
  static constexpr std::size_t kFew = 8;

  [[nodiscard]] bool admits_path(std::string_view path) const {
    if (path.empty()) return false;
    if (many.empty()) {
      if (std::find(few.begin(), few.end(), path) != few.end()) return true;
    } else if (many.contains(key_of(path))) {
      return true;
    }
    return std::any_of(globs.begin(), globs.end(), [path](const Glob& glob) { return glob.matches(path); });
  }
  [[nodiscard]] bool admits(const BinaryIdentity& binary) const {
    return admits_path(binary.path) ||
           std::any_of(binary.ancestors.begin(), binary.ancestors.end(), [this](const std::string& path) { return admits_path(path); });
  }
};

struct Rule {
  std::string_view key;
  Binaries binaries;
};

struct HostPattern {
  Glob glob;
  std::vector<std::uint32_t> endpoints;
};

// The part of a host pattern after its last label with a wildcard: every host that it admits ends in it.
std::string_view literal_suffix(std::string_view pattern) {
  const auto star = pattern.rfind('*');
  const auto dot = pattern.find('.', star);
  return dot == std::string_view::npos ? std::string_view{} : pattern.substr(dot + 1);
}

// An IP literal as inet_ntop writes it (RFC 5952); empty when `host` is none.
std::string canonical_literal(const std::string& host) {
  std::array<char, INET6_ADDRSTRLEN> out{};
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return host;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1 && inet_ntop(AF_INET6, &v6, out.data(), out.size()) != nullptr) return out.data();
  return {};
}

bool is_literal(std::string_view host) {
  if (host.find(':') != std::string_view::npos) return true;
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

struct Matcher::Tables {
  pb::SandboxPolicy policy;
  MatcherOptions options;
  std::vector<Rule> rules;             // by key
  std::vector<Endpoint> endpoints;     // candidates first, by connection rank, rule key, index
  std::vector<std::uint32_t> rule_of;  // endpoint -> rule
  std::deque<std::string> texts;       // hosts in compared form
  std::deque<RuleSet> rule_sets;
  absl::flat_hash_map<std::string, std::vector<std::uint32_t>> exact;
  absl::flat_hash_map<std::string, std::vector<HostPattern>> patterns;  // by literal suffix
  std::vector<std::uint32_t> hostless;

  absl::Status compile();
  absl::Status add_rule(const std::string& key, const pb::NetworkPolicyRule& rule);
  absl::StatusOr<Endpoint> make_endpoint(const std::string& key, const pb::NetworkPolicyRule& rule, int index);
  void assign_ranks();
  absl::Status build_index();

  template <class Use>
  void for_each_pattern(std::string_view host, Use&& use) const {
    if (patterns.empty()) return;
    std::string_view suffix = host;
    while (true) {
      if (const auto found = patterns.find(key_of(suffix)); found != patterns.end()) {
        for (const HostPattern& pattern : found->second) {
          if (pattern.glob.matches(host)) use(pattern);
        }
      }
      if (suffix.empty()) return;
      const auto dot = suffix.find('.');
      suffix = dot == std::string_view::npos ? std::string_view{} : suffix.substr(dot + 1);
    }
  }
};

std::string_view to_string(Protocol protocol) {
  constexpr std::array<std::string_view, 8> kNames{"", "tcp", "sql", "rest", "websocket", "graphql", "json-rpc", "mcp"};
  return kNames.at(static_cast<std::size_t>(protocol));
}

std::string_view to_string(Inspection inspection) {
  constexpr std::array<std::string_view, 3> kNames{"raw", "passthrough", "requests"};
  return kNames.at(static_cast<std::size_t>(inspection));
}

bool is_host_alias(std::string_view host) {
  return host == "host.openshell.internal" || host == "host.containers.internal" || host == "host.docker.internal";
}

bool Endpoint::admits_address(const std::array<std::uint8_t, 16>& address) const noexcept {
  return allowed_ips.empty() ||
         std::any_of(allowed_ips.begin(), allowed_ips.end(), [&](const AddressBlock& block) { return block.contains(address); });
}

bool Endpoint::covers_path(std::string_view path) const { return rules->path.matches(path); }

std::string Endpoint::id() const { return cat(policy, "#", index); }

// --- compiling
// -----------------------------------------------------------------------------------------------------------------------------------------

absl::StatusOr<Endpoint> Matcher::Tables::make_endpoint(const std::string& key, const pb::NetworkPolicyRule& rule, int index) {
  const auto& source = rule.endpoints(index);
  const auto protocol = parse_protocol(source.protocol());
  if (!protocol) return absl::InvalidArgumentError(cat("unknown protocol '", source.protocol(), "'"));
  if (source.tls() != pb::NETWORK_TLS_MODE_UNSPECIFIED && source.tls() != pb::NETWORK_TLS_MODE_SKIP) {
    return absl::InvalidArgumentError("unknown tls mode");
  }
  if (source.enforcement() < 0 || source.enforcement() > pb::NETWORK_ENFORCEMENT_MODE_AUDIT) {
    return absl::InvalidArgumentError("unknown enforcement mode");
  }
  if (source.access() < 0 || source.access() > pb::NETWORK_ACCESS_PRESET_FULL) return absl::InvalidArgumentError("unknown access preset");
  Endpoint endpoint;
  endpoint.policy = key;
  endpoint.policy_name = rule.name().empty() ? std::string_view{key} : std::string_view{rule.name()};
  endpoint.index = static_cast<std::uint32_t>(index);
  const std::string literal = canonical_literal(source.host());
  texts.push_back(literal.empty() ? text::lower(source.host()) : literal);
  endpoint.host = texts.back();
  endpoint.exact_host = host_class(endpoint.host) == HostClass::exact;
  endpoint.literal = !literal.empty();
  for (const auto port : source.ports()) {
    if (port == 0 || port > 65'535) return absl::InvalidArgumentError(cat("invalid port ", port));
    endpoint.ports.push_back(static_cast<std::uint16_t>(port));
  }
  if (endpoint.ports.empty() && source.port() != 0) {
    if (source.port() > 65'535) return absl::InvalidArgumentError(cat("invalid port ", source.port()));
    endpoint.ports.push_back(static_cast<std::uint16_t>(source.port()));
  }
  endpoint.protocol = *protocol;
  endpoint.tls = source.tls() == pb::NETWORK_TLS_MODE_SKIP ? TlsMode::skip : TlsMode::automatic;
  endpoint.enforcement = source.enforcement() == pb::NETWORK_ENFORCEMENT_MODE_ENFORCE ? Enforcement::enforce : Enforcement::audit;
  endpoint.carries_metadata = carries_metadata(source);
  endpoint.advisor_proposed = source.advisor_proposed();
  endpoint.provider_rule = key.starts_with(kProviderRulePrefix);
  endpoint.provider_credentialed = source.provider_credentialed();
  endpoint.allow_uninspected_credentials = source.allow_uninspected_credentials();
  endpoint.allow_encoded_slash = source.allow_encoded_slash();
  endpoint.request_body_credential_rewrite = source.request_body_credential_rewrite();
  endpoint.websocket_credential_rewrite = source.websocket_credential_rewrite();
  for (const auto& entry : source.allowed_ips()) {
    auto block = parse_address_block(entry);
    if (!block.ok()) return block.status();
    endpoint.allowed_ips.push_back(*block);
  }
  endpoint.source = &source;
  auto compiled = compile_rules(source, *protocol);
  if (!compiled.ok()) return compiled.status();
  rule_sets.push_back(*std::move(compiled));
  endpoint.rules = &rule_sets.back();
  return endpoint;
}

absl::Status Matcher::Tables::add_rule(const std::string& key, const pb::NetworkPolicyRule& rule) {
  Rule compiled{key, {}};
  std::vector<std::string> plain;
  for (const auto& binary : rule.binaries()) {
    if (binary.path().find('*') == std::string::npos) {
      plain.push_back(binary.path());
      for (const auto& [written, target] : options.symlink_targets) {
        if (written == binary.path()) plain.push_back(target);
      }
      continue;
    }
    auto glob = Glob::compile(binary.path(), GlobKind::binary);
    if (!glob.ok()) {
      return absl::InvalidArgumentError(cat("binary pattern '", binary.path(), "' ", std::string{glob.status().message()}));
    }
    compiled.binaries.globs.push_back(*std::move(glob));
  }
  if (plain.size() > Binaries::kFew) {
    compiled.binaries.many.insert(plain.begin(), plain.end());
  } else {
    compiled.binaries.few = std::move(plain);
  }
  for (int i = 0; i < rule.endpoints_size(); ++i) {
    auto endpoint = make_endpoint(key, rule, i);
    if (!endpoint.ok()) {
      return absl::InvalidArgumentError(cat("endpoints[", i, "]: ", std::string{endpoint.status().message()}));
    }
    endpoints.push_back(*std::move(endpoint));
  }
  rules.push_back(std::move(compiled));
  return absl::OkStatus();
}

// Dense integers from 1 in the order of the keys, equal keys equal.
template <class Key, class Assign>
void number_by(std::vector<Endpoint>& endpoints, Key&& key, Assign&& assign) {
  using KeyType = decltype(key(endpoints.front()));
  std::map<KeyType, std::uint32_t> ranks;
  for (const Endpoint& endpoint : endpoints) ranks.emplace(key(endpoint), 0);
  std::uint32_t next = 0;
  for (auto& [unused, rank] : ranks) rank = ++next;
  for (Endpoint& endpoint : endpoints) assign(endpoint, ranks.at(key(endpoint)));
}

void Matcher::Tables::assign_ranks() {
  if (endpoints.empty()) return;
  number_by(
      endpoints, [](const Endpoint& e) { return std::make_tuple(specificity(*e.source), !e.provider_rule); },
      [](Endpoint& e, std::uint32_t rank) { e.connection_rank = rank; });
  number_by(
      endpoints, [](const Endpoint& e) { return std::make_tuple(specificity(*e.source), e.rules->path.rank(), !e.provider_rule); },
      [](Endpoint& e, std::uint32_t rank) { e.request_rank = rank; });
  std::stable_sort(endpoints.begin(), endpoints.end(), [](const Endpoint& a, const Endpoint& b) {
    return std::make_tuple(!a.carries_metadata, ~a.connection_rank, a.policy, a.index) <
           std::make_tuple(!b.carries_metadata, ~b.connection_rank, b.policy, b.index);
  });
}

absl::Status Matcher::Tables::build_index() {
  absl::flat_hash_map<std::string, std::uint32_t> rule_numbers;
  for (std::uint32_t i = 0; i < rules.size(); ++i) rule_numbers.emplace(std::string{rules[i].key}, i);
  absl::flat_hash_map<std::string, std::pair<std::string, std::size_t>> known;  // pattern -> where it stands
  for (std::uint32_t i = 0; i < endpoints.size(); ++i) {
    const Endpoint& endpoint = endpoints[i];
    rule_of.push_back(rule_numbers.at(key_of(endpoint.policy)));
    if (endpoint.host.empty()) {
      if (!endpoint.allowed_ips.empty()) hostless.push_back(i);
    } else if (endpoint.exact_host) {
      exact[key_of(endpoint.host)].push_back(i);
    } else {
      const std::string host{endpoint.host};
      auto at = known.find(host);
      if (at == known.end()) {
        auto glob = Glob::compile(host, GlobKind::host);
        if (!glob.ok()) {
          return absl::InvalidArgumentError(
              cat("network policy '", endpoint.policy, "': host pattern '", host, "' ", std::string{glob.status().message()}));
        }
        auto& list = patterns[std::string{literal_suffix(host)}];
        at = known.emplace(host, std::make_pair(std::string{literal_suffix(host)}, list.size())).first;
        list.push_back({*std::move(glob), {}});
      }
      patterns.at(at->second.first)[at->second.second].endpoints.push_back(i);
    }
  }
  return absl::OkStatus();
}

absl::Status Matcher::Tables::compile() {
  const std::map<std::string_view, const pb::NetworkPolicyRule*> ordered = [this] {
    std::map<std::string_view, const pb::NetworkPolicyRule*> out;
    for (const auto& [key, rule] : policy.network_policies()) out.emplace(key, &rule);
    return out;
  }();
  for (const auto& [key, rule] : ordered) {
    const auto& stored = *policy.network_policies().find(std::string{key});
    if (const auto status = add_rule(stored.first, *rule); !status.ok()) {
      return absl::InvalidArgumentError(cat("network policy '", key, "': ", std::string{status.message()}));
    }
  }
  assign_ranks();
  return build_index();
}

absl::StatusOr<std::shared_ptr<const Matcher>> Matcher::compile(const pb::SandboxPolicy& policy, const MatcherOptions& options) {
  auto tables = std::make_unique<Tables>();
  tables->policy = policy;
  tables->options = options;
  if (const auto status = tables->compile(); !status.ok()) return status;
  return std::shared_ptr<const Matcher>{new Matcher{std::move(tables)}};
}

Matcher::Matcher(std::unique_ptr<Tables> tables) : tables_{std::move(tables)} {}
Matcher::~Matcher() = default;

// --- deciding a connection
// -----------------------------------------------------------------------------------------------------------------------------

Connection Matcher::connect(const Destination& destination) const {
  Connection out;
  out.matcher_ = shared_from_this();
  const Tables& t = *tables_;
  if (destination.host.empty() || destination.host.find('\0') != std::string_view::npos) {
    out.reason = destination.host.empty() ? "invalid input: network.host is empty" : "invalid input: network.host contains NUL";
    return out;
  }
  if (destination.port == 0) {
    out.reason = "invalid input: network.port";
    return out;
  }
  // A rule is asked about the program once, however many of its endpoints admit the destination.
  std::uint32_t asked_rule = UINT32_MAX;
  bool asked_answer = false;
  std::uint32_t first_rule = UINT32_MAX;
  const auto consider = [&](std::uint32_t i) {
    const Endpoint& endpoint = t.endpoints[i];
    if (std::find(endpoint.ports.begin(), endpoint.ports.end(), destination.port) == endpoint.ports.end()) return;
    const std::uint32_t rule = t.rule_of[i];
    if (rule != asked_rule) {
      asked_rule = rule;
      asked_answer = !t.options.require_binary_identity || t.rules[rule].binaries.admits(destination.binary);
    }
    if (!asked_answer) return;
    out.endpoints_.push_back(&endpoint);
    first_rule = std::min(first_rule, rule);
    if (endpoint.exact_host && !endpoint.advisor_proposed) out.exact_declared_host = true;
  };
  if (const auto found = t.exact.find(key_of(destination.host)); found != t.exact.end()) {
    for (const auto i : found->second) consider(i);
  }
  if (is_literal(destination.host)) {
    for (const auto i : t.hostless) consider(i);
  } else if (!is_host_alias(destination.host)) {
    t.for_each_pattern(destination.host, [&](const HostPattern& pattern) {
      for (const auto i : pattern.endpoints) consider(i);
    });
  }
  if (out.endpoints_.empty()) {
    out.exact_declared_host = false;
    out.reason = deny_reason(destination, &out.unknown_endpoint);
    return out;
  }
  // All endpoints stand in one array in the order of deciding, so order by address is that order.
  std::sort(out.endpoints_.begin(), out.endpoints_.end());
  out.allowed = true;
  out.policy = t.rules[first_rule].key;
  if (!out.endpoints_.front()->carries_metadata) {
    out.inspection = Inspection::passthrough;
    return out;
  }
  out.deciding = out.endpoints_.front();
  out.tls = out.deciding->tls;
  out.protocol = out.deciding->protocol;
  if (out.deciding->raw()) return out;
  const auto inspecting = std::find_if(out.endpoints_.begin(), out.endpoints_.end(), [](const Endpoint* e) { return e->inspects(); });
  out.inspection = inspecting == out.endpoints_.end() ? Inspection::passthrough : Inspection::requests;
  if (inspecting != out.endpoints_.end()) out.protocol = (*inspecting)->protocol;
  return out;
}

std::string Matcher::deny_reason(const Destination& destination, bool* unknown_endpoint) const {
  const Tables& t = *tables_;
  *unknown_endpoint = true;
  if (t.rules.empty()) return "network connections not allowed by policy";
  std::vector<std::uint32_t> refusing;  // rules that name the endpoint but not the program
  const auto consider = [&](std::uint32_t i) {
    const auto& ports = t.endpoints[i].ports;
    if (std::find(ports.begin(), ports.end(), destination.port) != ports.end()) refusing.push_back(t.rule_of[i]);
  };
  if (const auto found = t.exact.find(key_of(destination.host)); found != t.exact.end()) {
    for (const auto i : found->second) consider(i);
  }
  if (is_literal(destination.host)) {
    for (const auto i : t.hostless) consider(i);
  } else if (!is_host_alias(destination.host)) {
    t.for_each_pattern(destination.host, [&](const HostPattern& pattern) {
      for (const auto i : pattern.endpoints) consider(i);
    });
  }
  if (refusing.empty()) return cat("endpoint ", destination.host, ":", destination.port, " is not allowed by any policy");
  *unknown_endpoint = false;
  std::sort(refusing.begin(), refusing.end());
  refusing.erase(std::unique(refusing.begin(), refusing.end()), refusing.end());
  const auto joined = [](std::span<const std::string> items, std::string_view separator) {
    return text::join(std::vector<std::string>(items.begin(), items.end()), separator);
  };
  std::string reason;
  for (const auto rule : refusing) {
    if (!reason.empty()) reason += "; ";
    reason += cat("binary '", destination.binary.path, "' not allowed in policy '", t.rules[rule].key, "' (ancestors: [",
                  joined(destination.binary.ancestors, " -> "), "], cmdline: [", joined(destination.binary.cmdline_paths, ", "),
                  "]). SYMLINK HINT: the path above is the executable as the kernel resolved it; a rule has to name that path, "
                  "'readlink -f' shows it");
  }
  return reason;
}

bool Matcher::knows_host(std::string_view host) const {
  if (host.empty() || is_literal(host)) return false;
  if (tables_->exact.contains(key_of(host))) return true;
  if (is_host_alias(host)) return false;
  bool known = false;
  tables_->for_each_pattern(host, [&](const HostPattern&) { known = true; });
  return known;
}

std::vector<const Endpoint*> Matcher::endpoints_for(std::string_view host) const {
  std::vector<const Endpoint*> out;
  if (host.empty() || is_literal(host)) return out;
  if (const auto found = tables_->exact.find(key_of(host)); found != tables_->exact.end()) {
    for (const auto i : found->second) out.push_back(&tables_->endpoints[i]);
  }
  if (!is_host_alias(host)) {
    tables_->for_each_pattern(host, [&](const HostPattern& pattern) {
      for (const auto i : pattern.endpoints) out.push_back(&tables_->endpoints[i]);
    });
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool Matcher::has_rules() const noexcept { return !tables_->endpoints.empty(); }
const pb::SandboxPolicy& Matcher::policy() const noexcept { return tables_->policy; }
std::span<const Endpoint> Matcher::all_endpoints() const noexcept { return tables_->endpoints; }

}  // namespace openshell::policy
