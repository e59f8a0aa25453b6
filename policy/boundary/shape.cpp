// What of two policies is modelled, and how large they may be.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "policy/boundary/parts.hpp"
#include "policy/glob.hpp"
#include "policy/rank.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy::boundary {
namespace {

using text::cat;

// --- size

struct Size {
  std::size_t rules = 0, endpoints = 0, binaries = 0, ports = 0, request_rules = 0, matchers = 0, pattern_bytes = 0, longest = 0;

  void pattern(const std::string& text) {
    pattern_bytes += text.size();
    longest = std::max(longest, text.size());
  }
  template <class Rule>
  void request_rule(const Rule& rule) {
    ++request_rules;
    pattern(rule.method());
    pattern(rule.path());
    for (const auto& [name, matcher] : rule.query()) {
      ++matchers;
      pattern(name);
      pattern(matcher.glob());
      for (const auto& one : matcher.any()) pattern(one);
    }
  }
  void add(const pb::SandboxPolicy& policy) {
    for (const auto& [key, rule] : policy.network_policies()) {
      ++rules;
      for (const auto& binary : rule.binaries()) {
        ++binaries;
        pattern(binary.path());
      }
      for (const auto& endpoint : rule.endpoints()) {
        ++endpoints;
        ports += endpoint.ports_size() > 0 ? static_cast<std::size_t>(endpoint.ports_size()) : 1;
        pattern(endpoint.host());
        pattern(endpoint.path());
        for (const auto& one : endpoint.rules()) request_rule(one.allow());
        for (const auto& one : endpoint.deny_rules()) request_rule(one);
      }
    }
  }
};

// --- shape

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0 && static_cast<unsigned char>(c) < 0x80; });
}

class ShapeCheck {
 public:
  explicit ShapeCheck(std::string_view policy) : policy_{policy} {}

  MaybeAnswer policy(const pb::SandboxPolicy& source) {
    if (!source.network_middlewares().empty()) return refuse("", "network_middlewares, which are not modeled");
    std::map<std::string_view, const pb::NetworkPolicyRule*> ordered;
    for (const auto& [key, rule] : source.network_policies()) ordered.emplace(key, &rule);
    for (const auto& [key, rule] : ordered) {
      rule_ = key;
      for (const auto& binary : rule->binaries()) {
        if (!is_plain(binary.path())) return refuse("a binary with characters beyond ASCII");
      }
      for (const auto& one : rule->endpoints()) {
        if (auto answer = endpoint(one)) return answer;
      }
    }
    return {};
  }

 private:
  MaybeAnswer refuse(std::string_view what) { return refuse(rule_, what); }
  MaybeAnswer refuse(std::string_view rule, std::string_view what) {
    const std::string where = rule.empty() ? "" : cat(" rule '", rule, "'");
    return unresolved(Reason::unsupported_policy_shape, cat(policy_, " policy", where, " uses ", what));
  }

  MaybeAnswer endpoint(const pb::NetworkEndpoint& e) {
    const auto protocol = text::lower(e.protocol());
    if (!protocol.empty() && protocol != "tcp" && protocol != "rest") {
      return refuse(cat("protocol '", protocol, "'; only L4 TCP and REST are modeled"));
    }
    if (e.host().empty()) return refuse("an endpoint without a host");
    if (e.port() != 0 && e.ports_size() > 0) return refuse("both port and ports for one endpoint");
    if (e.host().find(':') != std::string::npos) return refuse("an IPv6 address as a host");
    if (!is_plain(e.host()) || !is_plain(e.path())) return refuse("a host or path with characters beyond ASCII");
    if (protocol != "rest") return {};
    if (e.tls() == pb::NETWORK_TLS_MODE_SKIP) return refuse("protocol 'rest' with tls: skip");
    if (e.enforcement() != pb::NETWORK_ENFORCEMENT_MODE_ENFORCE)
      return refuse("protocol 'rest' without enforcement: enforce; auditing stops nothing");
    if (e.allow_encoded_slash()) return refuse("allow_encoded_slash");
    if (auto answer = path(e.path())) return answer;
    for (const auto& one : e.rules()) {
      if (auto answer = request_rule(one.allow())) return answer;
    }
    for (const auto& one : e.deny_rules()) {
      if (auto answer = request_rule(one)) return answer;
    }
    return {};
  }

  template <class Rule>
  MaybeAnswer request_rule(const Rule& rule) {
    if (!is_plain(rule.method()) || !is_plain(rule.path())) return refuse("a method or path with characters beyond ASCII");
    if (!rule.command().empty() || !rule.operation_type().empty() || !rule.operation_name().empty() || rule.fields_size() > 0 ||
        !rule.params().empty()) {
      return refuse("a request rule with more than method, path and query");
    }
    for (const auto& [name, matcher] : rule.query()) {
      if (matcher.any_size() > 0) return refuse("a list of query values (any)");
      if (!is_plain(name) || !is_plain(matcher.glob())) return refuse("a query with characters beyond ASCII");
      if (matcher.glob() != "*" && matcher.glob().find_first_of("*?[]{}\\") != std::string::npos)
        return refuse("a partial pattern of a query value");
    }
    return path(rule.path());
  }

  MaybeAnswer path(const std::string& pattern) {
    if (pattern.find_first_of("?[]\\") != std::string::npos) return refuse("'?', brackets or a backslash in a path");
    return {};
  }

  std::string_view policy_;
  std::string_view rule_;
};

// --- endpoints beside each other

struct Place {
  const pb::NetworkEndpoint* endpoint;
  std::string_view policy;  ///< candidate or boundary
  std::string_view rule;
  std::string host;
  bool pattern;
  Glob glob;
  std::set<std::string> blocks;
};

using ByPort = std::map<std::uint32_t, std::vector<const Place*>>;

void collect(const pb::SandboxPolicy& policy, std::string_view name, std::vector<Place>& out) {
  for (const auto& [key, rule] : policy.network_policies()) {
    for (const auto& e : rule.endpoints()) {
      Place place{&e,
                  name,
                  key,
                  text::lower(e.host()),
                  host_class(e.host()) != HostClass::exact,
                  {},
                  {e.allowed_ips().begin(), e.allowed_ips().end()}};
      auto glob = Glob::compile(place.host, GlobKind::host);
      if (!glob.ok()) continue;  // validity is somebody else's question
      place.glob = *std::move(glob);
      out.push_back(std::move(place));
    }
  }
}

bool overlap(const Place& a, const Place& b) {
  if (!a.pattern && !b.pattern) return a.host == b.host;
  return Glob::overlap(a.glob, b.glob);
}

MaybeAnswer pair_fault(const Place& a, const Place& b, std::uint32_t port) {
  if (!overlap(a, b)) return {};
  const auto both = [&](std::string_view what) {
    return unresolved(Reason::unsupported_policy_shape, cat(a.policy, " policy rule '", a.rule, "' and ", b.policy, " policy rule '",
                                                            b.rule, "' name '", a.host, "' and '", b.host, "' on port ", port, " ", what));
  };
  if (a.blocks != b.blocks) return both("with different allowed_ips, which are not compared");
  if (a.pattern != b.pattern && a.blocks.empty()) {
    return both("without allowed_ips: only the exact name may lead to a private address, so they are not comparable");
  }
  const auto rest = [](const Place& p) { return p.endpoint->protocol() == "rest"; };
  if (a.policy == b.policy && rest(a) != rest(b)) return both("once with protocol rest and once without");
  return {};
}

MaybeAnswer check_port(const std::vector<const Place*>& places, std::uint32_t port, const Limits& limits) {
  std::map<std::string_view, const Place*> first_of_host[2];  // exact names meet by name, of either policy
  std::vector<const Place*> patterns;
  for (const Place* place : places) {
    if (place->pattern) {
      patterns.push_back(place);
      continue;
    }
    auto& mine = first_of_host[place->policy == "candidate" ? 1 : 0];
    for (auto& hosts : first_of_host) {
      const auto other = hosts.find(place->host);
      if (other == hosts.end()) continue;
      if (auto answer = pair_fault(*other->second, *place, port)) return answer;
    }
    mine.emplace(place->host, place);
  }
  for (const Place* pattern : patterns) {
    const auto reason = limits.interrupted ? limits.interrupted() : Reason::none;
    if (reason != Reason::none) return ended(reason);
    for (const Place* place : places) {
      if (place == pattern) continue;
      if (auto answer = pair_fault(*pattern, *place, port)) return answer;
    }
  }
  return {};
}

}  // namespace

std::optional<Answer> check_size(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary) {
  Size size;
  size.add(candidate);
  size.add(boundary);
  struct Bound {
    std::string_view name;
    std::size_t value, limit;
  };
  const Bound bounds[] = {{"rules", size.rules, kMaxRules},
                          {"endpoints", size.endpoints, kMaxEndpoints},
                          {"binaries", size.binaries, kMaxBinaries},
                          {"port entries", size.ports, kMaxPorts},
                          {"request rules", size.request_rules, kMaxRequestRules},
                          {"query matchers", size.matchers, kMaxQueryMatchers},
                          {"bytes in one pattern", size.longest, kMaxPatternBytes},
                          {"bytes of patterns", size.pattern_bytes, kMaxAllPatternBytes}};
  for (const auto& [name, value, limit] : bounds) {
    if (value > limit)
      return unresolved(Reason::resource_limit,
                        cat("both policies have ", value, " ", name, " together, at most ", limit, " are compared"));
  }
  return {};
}

MaybeAnswer check_shape(const pb::SandboxPolicy& policy, std::string_view name) { return ShapeCheck{name}.policy(policy); }

MaybeAnswer check_pairs(const pb::SandboxPolicy& candidate, const pb::SandboxPolicy& boundary, const Limits& limits) {
  std::vector<Place> places;
  places.reserve(kMaxEndpoints);
  collect(boundary, "boundary", places);
  collect(candidate, "candidate", places);
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return std::tie(a.policy, a.rule, a.host) < std::tie(b.policy, b.rule, b.host); });
  ByPort by_port;
  for (const Place& place : places) {
    for (const auto port : place.endpoint->ports()) by_port[port].push_back(&place);
  }
  for (const auto& [port, list] : by_port) {
    if (auto answer = check_port(list, port, limits)) return answer;
  }
  return {};
}

}  // namespace openshell::policy::boundary
