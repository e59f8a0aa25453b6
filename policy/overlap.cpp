// Which endpoints overlap, are equally specific, and disagree.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "policy/rank.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;

struct Side {
  const std::string* key = nullptr;
  int index = 0;
  const pb::NetworkEndpoint* endpoint = nullptr;
  std::string host;
  std::string suffix;           // of a pattern: what follows its last wildcard
  std::string reversed_suffix;  // the same from the right
  Specificity place;
  std::set<std::uint32_t> ports;
  Glob host_glob;
  Glob path;
  bool candidate = false;
  bool provider = false;
  Protocol protocol = Protocol::none;
};

// One property that both sides must agree on.
struct Conflict {
  std::string name;
  std::string left;
  std::string right;
};

std::string quoted(std::string_view value) { return cat("\"", value, "\""); }
std::string_view yes_no(bool value) { return value ? "true" : "false"; }

Side make_side(const std::string& key, int index, const pb::NetworkEndpoint& endpoint) {
  Side side;
  side.key = &key;
  side.index = index;
  side.endpoint = &endpoint;
  side.host = text::lower(endpoint.host());
  const auto star = side.host.rfind('*');
  side.suffix = star == std::string::npos ? side.host : side.host.substr(star + 1);
  side.reversed_suffix.assign(side.suffix.rbegin(), side.suffix.rend());
  side.place = specificity(endpoint);
  for (const auto port : endpoint.ports()) {
    if (port != 0) side.ports.insert(port);
  }
  if (endpoint.ports().empty() && endpoint.port() != 0) side.ports.insert(endpoint.port());
  if (!side.host.empty()) side.host_glob = Glob::compile(side.host, GlobKind::host).value_or(Glob{});
  side.path =
      Glob::compile(endpoint.path(), endpoint.allow_encoded_slash() ? GlobKind::path_encoded_slash : GlobKind::path).value_or(Glob{});
  side.candidate = carries_metadata(endpoint);
  side.provider = key.starts_with(kProviderRulePrefix);
  side.protocol = parse_protocol(endpoint.protocol()).value_or(Protocol::none);
  return side;
}

bool is_raw(Protocol protocol) { return protocol == Protocol::tcp || protocol == Protocol::sql; }
Protocol protocol_class(Protocol protocol) { return protocol == Protocol::sql ? Protocol::tcp : protocol; }
// As request metadata: what is relayed raw has no request protocol.
std::string_view request_protocol(Protocol protocol) { return is_raw(protocol) ? "" : to_string(protocol); }
std::string_view tls_name(const pb::NetworkEndpoint& e) { return e.tls() == pb::NETWORK_TLS_MODE_SKIP ? "skip" : "auto"; }
std::string_view enforcement_name(const pb::NetworkEndpoint& e) {
  return e.enforcement() == pb::NETWORK_ENFORCEMENT_MODE_ENFORCE ? "enforce" : "audit";
}
std::uint32_t body_limit(std::uint32_t value) { return value == 0 ? kDefaultBodyLimit : value; }
bool strict_names(const pb::NetworkEndpoint& e) { return !e.mcp().has_strict_tool_names() || e.mcp().strict_tool_names(); }

std::string list_text(const std::set<std::string>& items) {
  std::string out = "[";
  for (const auto& item : items) out += cat(out.size() > 1 ? "," : "", quoted(item));
  return out + "]";
}
std::set<std::string> address_set(const pb::NetworkEndpoint& endpoint) {
  std::set<std::string> out;
  for (const auto& entry : endpoint.allowed_ips()) out.insert(text::lower(text::trim(entry)));
  return out;
}
std::set<std::string> version_set(const pb::NetworkEndpoint& endpoint) {
  std::set<std::string> out{endpoint.mcp().versions().begin(), endpoint.mcp().versions().end()};
  if (out.empty()) out.insert(std::string{kDefaultMcpVersion});
  return out;
}

template <class Rule>
bool has_graphql(const Rule& rule) {
  return !rule.operation_type().empty() || !rule.operation_name().empty() || rule.fields_size() > 0;
}
bool graphql_over_websocket(const pb::NetworkEndpoint& e) {
  if (!e.graphql_persisted_queries().empty() || (!e.persisted_queries().empty() && e.persisted_queries() != "deny")) return true;
  return std::any_of(e.rules().begin(), e.rules().end(), [](const auto& rule) { return has_graphql(rule.allow()); }) ||
         std::any_of(e.deny_rules().begin(), e.deny_rules().end(), [](const auto& rule) { return has_graphql(rule); });
}

class Comparison {
 public:
  Comparison(const Side& a, const Side& b) : a_{a}, b_{b}, x_{*a.endpoint}, y_{*b.endpoint} {}

  std::vector<Conflict> run() {
    flag("transparent_tcp_eligible", is_raw(a_.protocol), is_raw(b_.protocol));
    words("tls", tls_name(x_), tls_name(y_));
    add("allowed_ips", list_text(address_set(x_)), list_text(address_set(y_)));
    const bool mixed = x_.advisor_proposed() != y_.advisor_proposed();
    if (a_.candidate && b_.candidate && (mixed || a_.path.rank() == b_.path.rank()) && Glob::overlap(a_.path, b_.path)) request();
    return std::move(found_);
  }

  // Same handling of the bytes: then a user rule simply wins over a provider's.
  [[nodiscard]] bool agree_on_inspection() const {
    if (protocol_class(a_.protocol) != protocol_class(b_.protocol) || tls_name(x_) != tls_name(y_)) return false;
    if (a_.protocol != Protocol::mcp) return true;
    return version_set(x_) == version_set(y_) && strict_names(x_) == strict_names(y_) &&
           x_.mcp().allow_all_known_mcp_methods() == y_.mcp().allow_all_known_mcp_methods() &&
           body_limit(x_.json_rpc_max_body_bytes()) == body_limit(y_.json_rpc_max_body_bytes());
  }

 private:
  void add(std::string_view name, std::string left, std::string right) {
    if (left != right) found_.push_back({std::string{name}, std::move(left), std::move(right)});
  }
  void flag(std::string_view name, bool left, bool right) { add(name, std::string{yes_no(left)}, std::string{yes_no(right)}); }
  void words(std::string_view name, std::string_view left, std::string_view right) { add(name, quoted(left), quoted(right)); }
  void number(std::string_view name, std::uint32_t left, std::uint32_t right) { add(name, cat(left), cat(right)); }

  void request() {
    words("protocol", request_protocol(a_.protocol), request_protocol(b_.protocol));
    words("enforcement", enforcement_name(x_), enforcement_name(y_));
    flag("allow_encoded_slash", x_.allow_encoded_slash(), y_.allow_encoded_slash());
    flag("websocket_credential_rewrite", x_.websocket_credential_rewrite(), y_.websocket_credential_rewrite());
    flag("request_body_credential_rewrite", x_.request_body_credential_rewrite(), y_.request_body_credential_rewrite());
    if (a_.protocol == Protocol::websocket && b_.protocol == Protocol::websocket) {
      flag("websocket_graphql_policy", graphql_over_websocket(x_), graphql_over_websocket(y_));
    }
    words("credential_signing", x_.credential_signing(), y_.credential_signing());
    words("signing_service", x_.signing_service(), y_.signing_service());
    words("signing_region", x_.signing_region(), y_.signing_region());
    words("credential_binding.provider", x_.credential_binding().provider(), y_.credential_binding().provider());
    if (a_.protocol == Protocol::graphql && b_.protocol == Protocol::graphql) {
      number("graphql_max_body_bytes", body_limit(x_.graphql_max_body_bytes()), body_limit(y_.graphql_max_body_bytes()));
    }
    if (a_.protocol == b_.protocol && (a_.protocol == Protocol::json_rpc || a_.protocol == Protocol::mcp)) {
      number("json_rpc_max_body_bytes", body_limit(x_.json_rpc_max_body_bytes()), body_limit(y_.json_rpc_max_body_bytes()));
    }
    if (a_.protocol == Protocol::mcp && b_.protocol == Protocol::mcp) {
      flag("mcp.strict_tool_names", strict_names(x_), strict_names(y_));
      add("mcp.versions", list_text(version_set(x_)), list_text(version_set(y_)));
      flag("mcp.allow_all_known_mcp_methods", x_.mcp().allow_all_known_mcp_methods(), y_.mcp().allow_all_known_mcp_methods());
    }
  }

  const Side& a_;
  const Side& b_;
  const pb::NetworkEndpoint& x_;
  const pb::NetworkEndpoint& y_;
  std::vector<Conflict> found_;
};

bool hosts_overlap(const Side& a, const Side& b) {
  if (a.host.empty() || b.host.empty() || a.host == b.host) return true;
  if (!a.suffix.ends_with(b.suffix) && !b.suffix.ends_with(a.suffix)) return false;
  return Glob::overlap(a.host_glob, b.host_glob);
}

std::vector<std::uint32_t> common_ports(const Side& a, const Side& b) {
  std::vector<std::uint32_t> out;
  std::set_intersection(a.ports.begin(), a.ports.end(), b.ports.begin(), b.ports.end(), std::back_inserter(out));
  return out;
}

template <class Ports>
std::string ports_text(const Ports& ports) {
  std::string out;
  for (const auto port : ports) out += cat(out.empty() ? "" : ",", port);
  return out;
}

std::string side_text(const Side& side) {
  return cat("'", *side.key, "' endpoint[", side.index, "] (", side.host.empty() ? "<any-host>" : side.endpoint->host(), ":",
             ports_text(side.ports), side.endpoint->path(), ")");
}

// The edit of one endpoint that removes the conflict, the least intrusive first.
std::string smallest_change(const Side& a, const Side& b, const std::vector<Conflict>& conflicts,
                            const std::vector<std::uint32_t>& shared) {
  const bool change_left = b.provider && !a.provider;
  const Side& mine = change_left ? a : b;
  const std::string where = cat("'", *mine.key, "' endpoint[", mine.index, "]");
  if (conflicts.size() == 1) {
    const Conflict& only = conflicts.front();
    const std::string& wanted = change_left ? only.right : only.left;
    if (only.name == "transparent_tcp_eligible") {
      const Side& other = change_left ? b : a;
      return cat("set protocol of ", where, " to ", quoted(other.endpoint->protocol().empty() ? "(none)" : other.endpoint->protocol()));
    }
    if (only.name == "tls" && wanted == "\"auto\"") return cat("remove tls from ", where);
    return cat("set ", only.name, " of ", where, " to ", wanted);
  }
  std::vector<std::uint32_t> rest;
  std::set_difference(mine.ports.begin(), mine.ports.end(), shared.begin(), shared.end(), std::back_inserter(rest));
  if (!rest.empty()) return cat("leave port(s) ", ports_text(shared), " out of ", where);
  const bool by_path = std::none_of(conflicts.begin(), conflicts.end(), [](const Conflict& c) {
    return c.name == "transparent_tcp_eligible" || c.name == "tls" || c.name == "allowed_ips";
  });
  if (by_path) return cat("give ", where, " a path of its own");
  if (mine.place.host != HostClass::exact) return cat("give ", where, " an exact host");
  return cat("remove ", where, " or make it equal to the other one");
}

class AmbiguityCheck {
 public:
  explicit AmbiguityCheck(Diagnostics& out) : out_{out} {}

  void run(const pb::SandboxPolicy& policy) {
    for (const auto& entry : policy.network_policies()) {
      for (int i = 0; i < entry.second.endpoints_size(); ++i) sides_.push_back(make_side(entry.first, i, entry.second.endpoints(i)));
    }
    std::sort(sides_.begin(), sides_.end(),
              [](const Side& a, const Side& b) { return std::tie(*a.key, a.index) < std::tie(*b.key, b.index); });
    // Endpoints are compared within a group of equal specificity, and every proposed one with every explicit one.
    std::map<std::tuple<HostClass, std::uint32_t, std::int32_t, bool, std::string>, std::vector<std::size_t>> groups;
    std::vector<std::size_t> proposed;
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      const Side& side = sides_[i];
      groups[{side.place.host, side.place.host_characters, side.place.minus_stars, side.place.single_port,
              side.place.host == HostClass::exact ? side.host : std::string{}}]
          .push_back(i);
      if (side.endpoint->advisor_proposed()) proposed.push_back(i);
    }
    for (auto& [place, members] : groups) {
      if (!compare_within(members)) return;
    }
    for (const auto i : proposed) {
      for (std::size_t j = 0; j < sides_.size(); ++j) {
        if (sides_[j].endpoint->advisor_proposed() || sides_[i].place.same_place(sides_[j].place)) continue;
        if (!consider(std::min(i, j), std::max(i, j))) return;
      }
    }
    report();
  }

 private:
  // Patterns meet only where what follows the last wildcard of one ends that of the other. Sorted by it from the right, those stand side by
  // side.
  bool compare_within(std::vector<std::size_t>& members) {
    std::sort(members.begin(), members.end(), [this](std::size_t i, std::size_t j) {
      return std::tie(sides_[i].reversed_suffix, i) < std::tie(sides_[j].reversed_suffix, j);
    });
    for (std::size_t i = 0; i < members.size(); ++i) {
      for (std::size_t j = i + 1; j < members.size(); ++j) {
        if (!sides_[members[j]].reversed_suffix.starts_with(sides_[members[i]].reversed_suffix)) break;
        if (!consider(std::min(members[i], members[j]), std::max(members[i], members[j]))) return false;
      }
    }
    return true;
  }

  // False: too much to look at; an error stands for the rest.
  bool consider(std::size_t i, std::size_t j) {
    if (++pairs_ > kMaxOverlapPairs) {
      report();
      out_.error("network_policies", cat("more than ", kMaxOverlapPairs, " pairs of endpoints on the same hosts to compare"),
                 "merge endpoints of one host into fewer rules", "too many endpoints on one host");
      return false;
    }
    const Side& a = sides_[i];
    const Side& b = sides_[j];
    const auto shared = common_ports(a, b);
    if (shared.empty() || !hosts_overlap(a, b)) return true;
    Comparison comparison{a, b};
    const bool one_provenance = a.endpoint->advisor_proposed() == b.endpoint->advisor_proposed();
    if (a.provider != b.provider && one_provenance && comparison.agree_on_inspection()) return true;
    const auto conflicts = comparison.run();
    if (conflicts.empty()) return true;
    std::string differing;
    for (const Conflict& conflict : conflicts) {
      differing += cat(differing.empty() ? "" : "; ", conflict.name, "=", conflict.left, " vs ", conflict.right);
    }
    found_.emplace(std::make_pair(i, j),
                   Diagnostic{Severity::error,
                              cat("network_policies.", *b.key, ".endpoints[", b.index, "]"),
                              cat("network policies ", side_text(a), " and ", side_text(b), " overlap on port(s) ", ports_text(shared),
                                  " with conflicting metadata: ", differing),
                              cat("smallest change: ", smallest_change(a, b, conflicts, shared)),
                              cat("conflicts with network_policies.", shorten(*a.key, 80), " in ", conflicts.front().name),
                              "",
                              {}});
    return true;
  }
  void report() {
    for (auto& [pair, diagnostic] : found_) out_.add(std::move(diagnostic));
    found_.clear();
  }

  Diagnostics& out_;
  std::vector<Side> sides_;
  std::map<std::pair<std::size_t, std::size_t>, Diagnostic> found_;
  std::size_t pairs_ = 0;
};

}  // namespace

Diagnostics find_ambiguities(const pb::SandboxPolicy& policy) {
  Diagnostics out;
  AmbiguityCheck{out}.run(policy);
  return out;
}

}  // namespace openshell::policy
