#include "policy/matcher.hpp"
#include "policy/arbiter.hpp"

#include <absl/container/flat_hash_map.h>
#include <arpa/inet.h>

#include <algorithm>
#include <deque>
#include <tuple>

#include "policy/crowd.hpp"
#include "policy/evaluator_input.hpp"
#include "policy/host_index.hpp"
#include "policy/normalize.hpp"
#include "policy/rank.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

absl::string_view key_of(std::string_view view) { return {view.data(), view.size()}; }

// The programs that a rule admits: plain paths by the number that the matcher gave them, and patterns.
struct Binaries {
  std::vector<std::uint32_t> plain;  // sorted
  std::vector<Glob> globs;
};

constexpr std::uint32_t kUnknownBinary = UINT32_MAX;

// One program and its ancestors while a connection is decided. Their numbers are looked up when a rule first asks.
class Caller {
 public:
  Caller(const BinaryIdentity& identity, const absl::flat_hash_map<std::string, std::uint32_t>& numbers)
      : identity_{identity}, numbers_{numbers} {}

  /// Calls `use(number, path)` for the program and each ancestor that has a path.
  template <class Use>
  void each(Use&& use) {
    for (std::size_t i = 0; i <= identity_.ancestors.size(); ++i) {
      if (!path(i).empty()) use(number(i), path(i));
    }
  }

  [[nodiscard]] bool admitted_by(const Binaries& binaries) {
    return admits(binaries, 0) || (!identity_.ancestors.empty() && ancestor_admitted(binaries));
  }

 private:
  [[nodiscard]] std::string_view path(std::size_t i) const {
    return i == 0 ? identity_.path : std::string_view{identity_.ancestors[i - 1]};
  }
  [[nodiscard]] std::uint32_t number(std::size_t i) {
    while (known_.size() <= i) {
      const auto found = numbers_.find(key_of(path(known_.size())));
      known_.push_back(found == numbers_.end() ? kUnknownBinary : found->second);
    }
    return known_[i];
  }
  [[nodiscard]] bool admits(const Binaries& binaries, std::size_t i) {
    if (path(i).empty()) return false;
    if (!binaries.plain.empty() && std::binary_search(binaries.plain.begin(), binaries.plain.end(), number(i))) return true;
    return std::any_of(binaries.globs.begin(), binaries.globs.end(), [&](const Glob& glob) { return glob.matches(path(i)); });
  }
  [[nodiscard]] bool ancestor_admitted(const Binaries& binaries) {
    for (std::size_t i = 1; i <= identity_.ancestors.size(); ++i) {
      if (admits(binaries, i)) return true;
    }
    return false;
  }

  const BinaryIdentity& identity_;
  const absl::flat_hash_map<std::string, std::uint32_t>& numbers_;
  absl::InlinedVector<std::uint32_t, 32> known_;
};

struct Rule {
  std::string_view key;
  Binaries binaries;
};

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
  absl::flat_hash_map<std::string, std::uint32_t> binary_numbers;
  HostIndex hosts;
  HostEntry hostless;
  using CrowdPlace = std::pair<const HostEntry*, std::uint16_t>;
  absl::flat_hash_map<CrowdPlace, Crowd> crowds;  // places with many endpoints
  std::size_t crowd_entries = 0;

  absl::Status compile();
  absl::Status add_rule(const std::string& key, const pb::NetworkPolicyRule& rule);
  absl::StatusOr<Binaries> make_binaries(const pb::NetworkPolicyRule& rule);
  absl::StatusOr<Endpoint> make_endpoint(const std::string& key, const pb::NetworkPolicyRule& rule, int index);
  void assign_ranks();
  absl::Status build_index();
  void build_crowds(const HostEntry& entry);
  [[nodiscard]] const Crowd* crowd(const HostEntry& entry, std::uint16_t port) const {
    if (crowds.empty()) return nullptr;
    const auto found = crowds.find({&entry, port});
    return found == crowds.end() ? nullptr : &found->second;
  }

  /// Calls `use(const HostEntry&)` with everything that admits `host`.
  template <class Use>
  void for_each_entry(std::string_view host, Use&& use) const {
    if (const auto* entry = hosts.exact(host)) use(*entry);
    if (is_literal(host)) {
      use(hostless);
    } else if (!is_host_alias(host)) {
      hosts.patterns(host, use);
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

// Bytes of a body that is read before the request is judged.
std::uint32_t body_limit(const pb::NetworkEndpoint& endpoint, Protocol protocol) {
  const auto or_default = [](std::uint32_t bytes) { return bytes == 0 ? kDefaultBodyLimit : bytes; };
  if (protocol == Protocol::graphql) return or_default(endpoint.graphql_max_body_bytes());
  if (protocol == Protocol::json_rpc || protocol == Protocol::mcp) return or_default(endpoint.json_rpc_max_body_bytes());
  return 0;
}

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
  endpoint.graphql_messages = *protocol == Protocol::websocket && has_graphql_policy(source);
  endpoint.mcp_strict_tool_names = !source.mcp().has_strict_tool_names() || source.mcp().strict_tool_names();
  endpoint.body_limit = body_limit(source, *protocol);
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

absl::StatusOr<Binaries> Matcher::Tables::make_binaries(const pb::NetworkPolicyRule& rule) {
  Binaries out;
  const auto plain = [&](const std::string& path) {
    const auto next = static_cast<std::uint32_t>(binary_numbers.size());
    out.plain.push_back(binary_numbers.try_emplace(path, next).first->second);
  };
  for (const auto& binary : rule.binaries()) {
    if (binary.path().find('*') == std::string::npos) {
      plain(binary.path());
      for (const auto& [written, target] : options.symlink_targets) {
        if (written == binary.path()) plain(target);
      }
      continue;
    }
    auto glob = Glob::compile(binary.path(), GlobKind::binary);
    if (!glob.ok()) {
      return absl::InvalidArgumentError(cat("binary pattern '", binary.path(), "' ", std::string{glob.status().message()}));
    }
    out.globs.push_back(*std::move(glob));
  }
  std::sort(out.plain.begin(), out.plain.end());
  return out;
}

absl::Status Matcher::Tables::add_rule(const std::string& key, const pb::NetworkPolicyRule& rule) {
  auto binaries = make_binaries(rule);
  if (!binaries.ok()) return binaries.status();
  for (int i = 0; i < rule.endpoints_size(); ++i) {
    auto endpoint = make_endpoint(key, rule, i);
    if (!endpoint.ok()) {
      return absl::InvalidArgumentError(cat("endpoints[", i, "]: ", std::string{endpoint.status().message()}));
    }
    endpoints.push_back(*std::move(endpoint));
  }
  rules.push_back({key, *std::move(binaries)});
  return absl::OkStatus();
}

// Dense integers from 1 in the order of the keys, equal keys equal.
template <class Key, class Assign>
void number_by(std::vector<Endpoint>& endpoints, Key&& key, Assign&& assign) {
  std::vector<std::pair<decltype(key(endpoints.front())), Endpoint*>> order;
  order.reserve(endpoints.size());
  for (Endpoint& endpoint : endpoints) order.emplace_back(key(endpoint), &endpoint);
  std::sort(order.begin(), order.end());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || order[i - 1].first < order[i].first) ++rank;
    assign(*order[i].second, rank);
  }
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
  absl::flat_hash_map<absl::string_view, std::uint32_t> rule_numbers;
  for (std::uint32_t i = 0; i < rules.size(); ++i) rule_numbers.emplace(key_of(rules[i].key), i);
  rule_of.reserve(endpoints.size());
  for (std::uint32_t i = 0; i < endpoints.size(); ++i) {
    const Endpoint& endpoint = endpoints[i];
    rule_of.push_back(rule_numbers.at(key_of(endpoint.policy)));
    if (endpoint.host.empty()) {
      if (!endpoint.allowed_ips.empty()) hostless.add(endpoint.ports, i);
    } else if (endpoint.exact_host) {
      hosts.add_exact(endpoint.host, endpoint.ports, i);
    } else if (const auto status = hosts.add_pattern(endpoint.host, endpoint.ports, i); !status.ok()) {
      return absl::InvalidArgumentError(
          cat("network policy '", endpoint.policy, "': host pattern '", endpoint.host, "' ", std::string{status.message()}));
    }
  }
  hosts.finish();
  hostless.finish();
  hosts.each([this](const HostEntry& entry) { build_crowds(entry); });
  build_crowds(hostless);
  return absl::OkStatus();
}

void Matcher::Tables::build_crowds(const HostEntry& entry) {
  for (std::size_t begin = 0, end = 0; begin < entry.by_port.size(); begin = end) {
    const auto port = entry.by_port[begin].first;
    std::size_t entries = 0;
    for (end = begin; end < entry.by_port.size() && entry.by_port[end].first == port; ++end) {
      const auto& binaries = rules[rule_of[entry.by_port[end].second]].binaries;
      entries += 1 + binaries.plain.size() + binaries.globs.size();
    }
    if (end - begin < kCrowdedFrom || crowd_entries + entries > kMaxCrowdEntries) continue;
    crowd_entries += entries;
    Crowd& crowd = crowds[{&entry, port}];
    for (std::size_t i = begin; i < end; ++i) {
      const auto endpoint = entry.by_port[i].second;
      const auto& binaries = rules[rule_of[endpoint]].binaries;
      crowd.add(endpoints[endpoint], rule_of[endpoint], binaries.plain, binaries.globs);
    }
    crowd.finish();
  }
}

absl::Status Matcher::Tables::compile() {
  std::vector<const google::protobuf::MapPair<std::string, pb::NetworkPolicyRule>*> ordered;
  ordered.reserve(policy.network_policies().size());
  for (const auto& entry : policy.network_policies()) ordered.push_back(&entry);
  std::sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  for (const auto* entry : ordered) {
    if (const auto status = add_rule(entry->first, entry->second); !status.ok()) {
      return absl::InvalidArgumentError(cat("network policy '", entry->first, "': ", std::string{status.message()}));
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
  if (const auto fault = input_fault(destination); !fault.empty()) {
    out.reason = cat("invalid input: ", fault);
    return out;
  }
  if (t.options.arbiter) {
    arbitrate(destination, out);
    return out;
  }
  // A rule is asked about the program once, however many of its endpoints admit the destination.
  Caller caller{destination.binary, t.binary_numbers};
  std::uint32_t asked_rule = UINT32_MAX;
  bool asked_answer = false;
  std::uint32_t first_rule = UINT32_MAX;
  const auto consider = [&](std::uint32_t i) {
    const Endpoint& endpoint = t.endpoints[i];
    const std::uint32_t rule = t.rule_of[i];
    if (rule != asked_rule) {
      asked_rule = rule;
      asked_answer = !t.options.require_binary_identity || caller.admitted_by(t.rules[rule].binaries);
    }
    if (!asked_answer) return;
    out.endpoints_.push_back(&endpoint);
    first_rule = std::min(first_rule, rule);
    if (endpoint.exact_host && !endpoint.advisor_proposed) out.exact_declared_host = true;
  };
  // One list of the matcher is taken as it is; several are put together.
  const auto take = [&](const EndpointList& list) {
    first_rule = std::min(first_rule, list.first_rule);
    out.exact_declared_host = out.exact_declared_host || list.exact_declared_host;
    if (out.listed_ == nullptr) {
      out.listed_ = &list;
    } else if (out.listed_ != &list) {
      out.endpoints_.insert(out.endpoints_.end(), list.endpoints.begin(), list.endpoints.end());
    }
  };
  t.for_each_entry(destination.host, [&](const HostEntry& entry) {
    const Crowd* crowd = t.crowd(entry, destination.port);
    if (crowd == nullptr) {
      entry.on_port(destination.port, consider);
    } else if (!t.options.require_binary_identity) {
      take(crowd->everyone());
    } else {
      caller.each([&](std::uint32_t number, std::string_view path) { crowd->of(number, path, take); });
    }
  });
  out.settle();
  if (out.endpoints().empty()) {
    explain_denial(destination, out);
    return out;
  }
  out.allowed = true;
  out.policy = t.rules[first_rule].key;
  out.settle_inspection(out.endpoints().front());
  return out;
}

void Connection::settle_inspection(const Endpoint* front) {
  if (!front->carries_metadata) {
    inspection = Inspection::passthrough;
    return;
  }
  deciding = front;
  tls = front->tls;
  protocol = front->protocol;
  if (front->raw()) return;
  const Endpoint* inspecting = first_inspecting();
  inspection = inspecting == nullptr ? Inspection::passthrough : Inspection::requests;
  if (inspecting != nullptr) protocol = inspecting->protocol;
}

void Matcher::arbitrate(const Destination& destination, Connection& out) const {
  out.arbitrated_ = tables_->options.arbiter->connect(*this, destination);
  const Arbitrated& answer = *out.arbitrated_;
  out.allowed = answer.allowed;
  out.policy = answer.policy;
  out.reason = answer.reason;
  out.exact_declared_host = answer.exact_declared_host;
  if (!out.allowed) return;
  out.endpoints_.assign(answer.endpoints.begin(), answer.endpoints.end());
  // The plain ones last, as in every list: they only authorise.
  std::stable_partition(out.endpoints_.begin(), out.endpoints_.end(), [](const Endpoint* endpoint) { return endpoint->carries_metadata; });
  if (out.endpoints_.empty()) {
    out.inspection = Inspection::passthrough;
  } else {
    out.settle_inspection(out.endpoints_.front());
  }
}

void Matcher::explain_denial(const Destination& destination, Connection& out) const {
  const Tables& t = *tables_;
  out.unknown_endpoint = true;
  if (t.rules.empty()) {
    out.reason = "network connections not allowed by policy";
    return;
  }
  std::vector<std::uint32_t> refusing;  // rules that name the endpoint but not the program
  out.miss.field = Field::host;
  t.for_each_entry(destination.host, [&](const HostEntry& entry) {
    entry.on_port(destination.port, [&](std::uint32_t i) {
      if (out.miss.field != Field::binary || &t.endpoints[i] < out.miss.endpoint) out.miss = {&t.endpoints[i], -1, Field::binary, {}, 0};
      refusing.push_back(t.rule_of[i]);
    });
    if (out.miss.field == Field::host && !entry.all.empty()) out.miss = {&t.endpoints[entry.all.front()], -1, Field::port, {}, 0};
  });
  if (refusing.empty()) {
    out.reason = cat("endpoint ", destination.host, ":", destination.port, " is not allowed by any policy");
    return;
  }
  out.unknown_endpoint = false;
  std::sort(refusing.begin(), refusing.end());
  refusing.erase(std::unique(refusing.begin(), refusing.end()), refusing.end());
  const auto joined = [](std::span<const std::string> items, std::string_view separator) {
    return text::join(std::vector<std::string>(items.begin(), items.end()), separator);
  };
  for (const auto rule : refusing) {
    if (!out.reason.empty()) out.reason += "; ";
    out.reason += cat("binary '", destination.binary.path, "' not allowed in policy '", t.rules[rule].key, "' (ancestors: [",
                      joined(destination.binary.ancestors, " -> "), "], cmdline: [", joined(destination.binary.cmdline_paths, ", "),
                      "]). SYMLINK HINT: the path above is the executable as the kernel resolved it; a rule has to name that path, "
                      "'readlink -f' shows it");
  }
}

bool Matcher::knows_host(std::string_view host) const {
  if (host.empty() || is_literal(host)) return false;
  bool known = false;
  tables_->for_each_entry(host, [&](const HostEntry&) { known = true; });
  return known;
}

std::vector<const Endpoint*> Matcher::endpoints_for(std::string_view host) const {
  std::vector<const Endpoint*> out;
  if (host.empty() || is_literal(host)) return out;
  tables_->for_each_entry(host, [&](const HostEntry& entry) {
    for (const auto i : entry.all) out.push_back(&tables_->endpoints[i]);
  });
  std::sort(out.begin(), out.end());
  return out;
}

const pb::SandboxPolicy& Matcher::policy() const noexcept { return tables_->policy; }
const MatcherOptions& Matcher::options() const noexcept { return tables_->options; }
std::span<const Endpoint> Matcher::all_endpoints() const noexcept { return tables_->endpoints; }

}  // namespace openshell::policy
