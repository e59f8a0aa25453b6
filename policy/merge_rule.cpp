// Adding a rule: which stored rule it belongs to, what the two become together, and whether that grants more than was declared.
#include <absl/status/status.h>

#include <algorithm>
#include <map>

#include "policy/merge_parts.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using text::cat;

enum class Conflict { none, inheritance, other };

struct RuleMerge {
  absl::Status status;
  Conflict conflict = Conflict::none;
};

RuleMerge refused(const absl::Status& status, Conflict conflict) { return {status, conflict}; }

std::string place_of(const pb::NetworkEndpoint& endpoint) {
  const auto ports = ports_of(endpoint);
  return cat(endpoint.host(), ":", ports.empty() ? 0U : *ports.begin());
}

std::string_view word(pb::NetworkTlsMode mode) { return mode == pb::NETWORK_TLS_MODE_SKIP ? "skip" : "auto"; }
std::string_view word(pb::NetworkEnforcementMode mode) { return mode == pb::NETWORK_ENFORCEMENT_MODE_AUDIT ? "audit" : "enforce"; }
std::string_view word(pb::NetworkAccessPreset access) {
  switch (access) {
    case pb::NETWORK_ACCESS_PRESET_READ_ONLY:
      return "read-only";
    case pb::NETWORK_ACCESS_PRESET_READ_WRITE:
      return "read-write";
    default:
      return "full";
  }
}

// An endpoint that says nothing of inspection adopts the MCP contract of the one it meets.
bool is_blank(const pb::NetworkEndpoint& endpoint) {
  return endpoint.protocol().empty() && !endpoint.has_mcp() && endpoint.json_rpc_max_body_bytes() == 0;
}

class EndpointMerge {
 public:
  EndpointMerge(pb::NetworkEndpoint& into, const pb::NetworkEndpoint& from, MergeContext& at)
      : into_{into}, from_{from}, at_{at}, place_{place_of(from)} {}

  absl::Status run() {
    if (auto status = contract(); !status.ok()) return status;
    if (auto status = fixed_fields(); !status.ok()) return status;
    auto ports = ports_of(into_);
    for (auto port : ports_of(from_)) ports.insert(port);
    set_ports(into_, ports);
    modes();
    requests();
    append_unique(*into_.mutable_deny_rules(), from_.deny_rules());
    for (const auto& block : from_.allowed_ips()) {
      if (std::find(into_.allowed_ips().begin(), into_.allowed_ips().end(), block) == into_.allowed_ips().end())
        into_.add_allowed_ips(block);
    }
    into_.set_allow_encoded_slash(into_.allow_encoded_slash() || from_.allow_encoded_slash());
    into_.set_websocket_credential_rewrite(into_.websocket_credential_rewrite() || from_.websocket_credential_rewrite());
    into_.set_request_body_credential_rewrite(into_.request_body_credential_rewrite() || from_.request_body_credential_rewrite());
    into_.set_allow_uninspected_credentials(into_.allow_uninspected_credentials() || from_.allow_uninspected_credentials());
    into_.set_advisor_proposed(into_.advisor_proposed() && from_.advisor_proposed());
    return absl::OkStatus();
  }

 private:
  absl::Status contract() {
    const bool mcp = into_.protocol() == "mcp" || from_.protocol() == "mcp";
    if (!mcp || contract_of(into_) == contract_of(from_)) return absl::OkStatus();
    if (from_.protocol() == "mcp" && is_blank(into_)) {
      into_.set_protocol("mcp");
      *into_.mutable_mcp() = from_.mcp();
      into_.set_json_rpc_max_body_bytes(from_.json_rpc_max_body_bytes());
      return absl::OkStatus();
    }
    if (is_blank(from_)) return absl::OkStatus();
    return absl::FailedPreconditionError(cat("merge operation ", at_.index, " cannot combine MCP contracts at ", place_, ": existing ",
                                             contract_of(into_), ", incoming ", contract_of(from_)));
  }

  // Fields of which an endpoint has one value: an incoming one that differs is refused, never dropped.
  absl::Status fixed_fields() {
    std::string differs;
    const auto check = [&](bool set, bool same, std::string_view field) {
      if (set && !same && differs.empty()) differs = field;
    };
    check(!from_.persisted_queries().empty(), from_.persisted_queries() == into_.persisted_queries(), "persisted_queries");
    pb::NetworkEndpoint mine, theirs;
    *mine.mutable_graphql_persisted_queries() = into_.graphql_persisted_queries();
    *theirs.mutable_graphql_persisted_queries() = from_.graphql_persisted_queries();
    check(from_.graphql_persisted_queries_size() > 0, bytes_of(mine) == bytes_of(theirs), "graphql_persisted_queries");
    check(from_.graphql_max_body_bytes() != 0, from_.graphql_max_body_bytes() == into_.graphql_max_body_bytes(), "graphql_max_body_bytes");
    check(from_.json_rpc_max_body_bytes() != 0, from_.json_rpc_max_body_bytes() == into_.json_rpc_max_body_bytes(),
          "json_rpc_max_body_bytes");
    check(!from_.credential_signing().empty(), from_.credential_signing() == into_.credential_signing(), "credential_signing");
    check(!from_.signing_service().empty(), from_.signing_service() == into_.signing_service(), "signing_service");
    check(!from_.signing_region().empty(), from_.signing_region() == into_.signing_region(), "signing_region");
    check(from_.has_credential_binding(), bytes_of(from_.credential_binding()) == bytes_of(into_.credential_binding()),
          "credential_binding");
    if (differs.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(cat("merge operation ", at_.index, " cannot change ", differs, " of endpoint ", place_,
                                             "; remove the endpoint first, or replace the policy"));
  }

  void modes() {
    if (into_.protocol().empty()) {
      into_.set_protocol(from_.protocol());
    } else if (!from_.protocol().empty() && from_.protocol() != into_.protocol()) {
      warn(cat("endpoint ", place_, " keeps existing protocol '", into_.protocol(), "' and ignores incoming '", from_.protocol(), "'"));
    }
    if (into_.enforcement() == pb::NETWORK_ENFORCEMENT_MODE_UNSPECIFIED) {
      into_.set_enforcement(from_.enforcement());
    } else if (from_.enforcement() != pb::NETWORK_ENFORCEMENT_MODE_UNSPECIFIED && from_.enforcement() != into_.enforcement()) {
      warn(cat("endpoint ", place_, " keeps existing enforcement '", word(into_.enforcement()), "' and ignores incoming '",
               word(from_.enforcement()), "'"));
    }
    if (into_.tls() == pb::NETWORK_TLS_MODE_UNSPECIFIED) {
      into_.set_tls(from_.tls());
    } else if (from_.tls() != pb::NETWORK_TLS_MODE_UNSPECIFIED && from_.tls() != into_.tls()) {
      warn(cat("endpoint ", place_, " keeps existing tls mode '", word(into_.tls()), "' and ignores incoming '", word(from_.tls()), "'"));
    }
  }

  void requests() {
    if (from_.rules_size() > 0) {
      const auto before = into_.access();
      if (expand_access(into_)) warn(cat("expanded access preset '", word(before), "' to explicit rules for endpoint ", place_));
      append_unique(*into_.mutable_rules(), from_.rules());
      if (from_.access() != pb::NETWORK_ACCESS_PRESET_UNSPECIFIED) ignored_access();
      return;
    }
    if (from_.access() == pb::NETWORK_ACCESS_PRESET_UNSPECIFIED) return;
    if (into_.rules_size() > 0) {
      ignored_access();
    } else if (into_.access() == pb::NETWORK_ACCESS_PRESET_UNSPECIFIED) {
      into_.set_access(from_.access());
    } else if (into_.access() != from_.access()) {
      warn(cat("endpoint ", place_, " keeps existing access preset '", word(into_.access()), "' and ignores incoming '",
               word(from_.access()), "'"));
    }
  }
  void ignored_access() {
    warn(cat("endpoint ", place_, " already uses explicit rules; incoming access preset '", word(from_.access()), "' was ignored"));
  }
  void warn(std::string text) { at_.warnings.push_back(std::move(text)); }

  pb::NetworkEndpoint& into_;
  const pb::NetworkEndpoint& from_;
  MergeContext& at_;
  std::string place_;
};

// `declared` with what it leaves open taken from `merged`.
pb::NetworkEndpoint filled(pb::NetworkEndpoint declared, const pb::NetworkEndpoint& merged) {
  if (declared.protocol().empty()) declared.set_protocol(merged.protocol());
  if (declared.tls() == pb::NETWORK_TLS_MODE_UNSPECIFIED) declared.set_tls(merged.tls());
  if (declared.enforcement() == pb::NETWORK_ENFORCEMENT_MODE_UNSPECIFIED) declared.set_enforcement(merged.enforcement());
  if (declared.access() == pb::NETWORK_ACCESS_PRESET_UNSPECIFIED && declared.rules_size() == 0) declared.set_access(merged.access());
  if (declared.persisted_queries().empty()) declared.set_persisted_queries(merged.persisted_queries());
  if (declared.graphql_persisted_queries_size() == 0) {
    *declared.mutable_graphql_persisted_queries() = merged.graphql_persisted_queries();
  }
  if (declared.graphql_max_body_bytes() == 0) declared.set_graphql_max_body_bytes(merged.graphql_max_body_bytes());
  if (declared.json_rpc_max_body_bytes() == 0) declared.set_json_rpc_max_body_bytes(merged.json_rpc_max_body_bytes());
  if (declared.credential_signing().empty()) {
    declared.set_credential_signing(merged.credential_signing());
    declared.set_signing_service(merged.signing_service());
    declared.set_signing_region(merged.signing_region());
  }
  if (!declared.has_credential_binding() && merged.has_credential_binding()) {
    *declared.mutable_credential_binding() = merged.credential_binding();
  }
  if (!declared.has_mcp() && merged.has_mcp()) *declared.mutable_mcp() = merged.mcp();
  return declared;
}

// What an endpoint means on one port, for comparison.
std::string authorization(pb::NetworkEndpoint endpoint) {
  endpoint.clear_port();
  endpoint.clear_ports();
  endpoint.set_host(text::lower(endpoint.host()));
  return bytes_of(endpoint);
}

// A rule grants every one of its programs every one of its endpoints: what of that product did nobody write down?
class GrantCheck {
 public:
  GrantCheck(const pb::NetworkPolicyRule& before, const pb::NetworkPolicyRule& merged, const pb::NetworkPolicyRule& incoming,
             const std::string& name, int index)
      : before_{before}, merged_{merged}, incoming_{incoming}, head_{cat("merge operation ", index, " add-rule '", name, "' ")} {}

  absl::Status run() const {
    if (auto status = new_binaries(); !status.ok()) return status;
    bool changed = false;
    for (const auto& endpoint : merged_.endpoints()) {
      const auto ports = changed_ports(endpoint);
      changed = changed || !ports.empty();
      if (auto status = undeclared_ports(endpoint, ports); !status.ok()) return status;
    }
    return changed ? existing_binaries() : absl::OkStatus();
  }

 private:
  absl::Status new_binaries() const {
    const auto old = paths_of(before_.binaries());
    std::string added;
    if (!old.empty() && incoming_.binaries().empty()) added = "any binary";
    if (!old.empty()) {
      for (const auto& path : paths_of(incoming_.binaries())) {
        if (!old.contains(path) && added.empty()) added = cat("binary '", path, "'");
      }
    }
    if (added.empty()) return absl::OkStatus();
    for (const auto& endpoint : merged_.endpoints()) {
      std::set<std::uint32_t> missing;
      for (auto port : ports_of(endpoint)) {
        const bool declared = std::any_of(incoming_.endpoints().begin(), incoming_.endpoints().end(),
                                          [&](const auto& own) { return endpoint_covers(filled(own, endpoint), endpoint, port); });
        if (!declared) missing.insert(port);
      }
      if (!missing.empty()) {
        return absl::FailedPreconditionError(
            cat(head_, "would grant ", added, " undeclared authorization for ", endpoint.host(), " on ports ", port_list(missing)));
      }
    }
    return absl::OkStatus();
  }

  [[nodiscard]] std::set<std::uint32_t> changed_ports(const pb::NetworkEndpoint& endpoint) const {
    std::set<std::uint32_t> changed;
    for (auto port : ports_of(endpoint)) {
      const bool same = std::any_of(before_.endpoints().begin(), before_.endpoints().end(), [&](const auto& old) {
        return ports_of(old).contains(port) && authorization(old) == authorization(endpoint);
      });
      if (!same) changed.insert(port);
    }
    return changed;
  }

  [[nodiscard]] absl::Status undeclared_ports(const pb::NetworkEndpoint& endpoint, const std::set<std::uint32_t>& changed) const {
    std::set<std::uint32_t> missing = changed;
    for (const auto& own : incoming_.endpoints()) {
      if (!same_text(own.host(), endpoint.host()) || own.path() != endpoint.path()) continue;
      for (auto port : ports_of(own)) missing.erase(port);
    }
    if (missing.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(cat(head_, "would change authorization for ", endpoint.host(), " on undeclared ports ",
                                             port_list(missing), "; declare every port of the endpoint it modifies"));
  }

  [[nodiscard]] absl::Status existing_binaries() const {
    if (incoming_.binaries().empty()) return absl::OkStatus();
    const auto declared = paths_of(incoming_.binaries());
    std::vector<std::string> missing;
    for (const auto& path : paths_of(before_.binaries())) {
      if (!declared.contains(path)) missing.push_back(path);
    }
    if (!before_.binaries().empty() && missing.empty()) return absl::OkStatus();
    for (const auto& endpoint : merged_.endpoints()) {
      const auto ports = changed_ports(endpoint);
      if (ports.empty()) continue;
      return absl::FailedPreconditionError(cat(head_, "would grant existing binaries new or changed authorization for ", endpoint.host(),
                                               " on ports ", port_list(ports), "; also declare ",
                                               missing.empty() ? "the existing any-binary scope" : text::join(missing, ", ")));
    }
    return absl::OkStatus();
  }

  const pb::NetworkPolicyRule& before_;
  const pb::NetworkPolicyRule& merged_;
  const pb::NetworkPolicyRule& incoming_;
  std::string head_;
};

void merge_binaries(pb::NetworkPolicyRule& rule, const pb::NetworkPolicyRule& incoming, const std::string& name, MergeContext& at) {
  if (rule.binaries().empty()) {
    if (incoming.binaries().empty()) return;
    const auto paths = paths_of(incoming.binaries());
    at.warnings.push_back(cat("rule '", name, "' already authorizes any binary; kept that scope instead of narrowing it to ",
                              text::join({paths.begin(), paths.end()}, ", ")));
    return;
  }
  if (incoming.binaries().empty()) return rule.clear_binaries();
  for (const auto& binary : incoming.binaries()) {
    if (!paths_of(rule.binaries()).contains(binary.path())) *rule.add_binaries() = binary;
  }
}

RuleMerge merge_into(pb::NetworkPolicyRule& rule, const pb::NetworkPolicyRule& incoming, const std::string& stored, const std::string& name,
                     MergeContext& at) {
  const auto before = rule;
  for (const auto& endpoint : incoming.endpoints()) {
    const auto found = std::find_if(rule.mutable_endpoints()->begin(), rule.mutable_endpoints()->end(),
                                    [&](const auto& own) { return overlaps(own, endpoint); });
    if (found == rule.mutable_endpoints()->end()) {
      *rule.add_endpoints() = endpoint;
    } else if (auto status = EndpointMerge{*found, endpoint, at}.run(); !status.ok()) {
      return refused(status, Conflict::other);
    }
  }
  if (auto status = GrantCheck{before, rule, incoming, name, at.index}.run(); !status.ok()) return refused(status, Conflict::inheritance);
  merge_binaries(rule, incoming, stored, at);
  return {};
}

void tidy(pb::NetworkPolicyRule& rule) {
  for (auto& endpoint : *rule.mutable_endpoints()) {
    set_ports(endpoint, ports_of(endpoint));
    const auto unique = [](auto& list) {
      auto copy = list;
      list.Clear();
      append_unique(list, copy);
    };
    unique(*endpoint.mutable_rules());
    unique(*endpoint.mutable_deny_rules());
    std::vector<std::string> blocks;
    for (const auto& block : endpoint.allowed_ips()) {
      if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
    }
    *endpoint.mutable_allowed_ips() = {blocks.begin(), blocks.end()};
  }
  auto binaries = rule.binaries();
  rule.clear_binaries();
  append_unique(*rule.mutable_binaries(), binaries);
}

bool shares_endpoint(const pb::NetworkPolicyRule& a, const pb::NetworkPolicyRule& b) {
  return std::any_of(a.endpoints().begin(), a.endpoints().end(), [&](const auto& x) {
    return std::any_of(b.endpoints().begin(), b.endpoints().end(), [&](const auto& y) { return overlaps(x, y); });
  });
}

}  // namespace

absl::Status add_rule(pb::SandboxPolicy& policy, const std::string& name, pb::NetworkPolicyRule rule, MergeContext& at) {
  tidy(rule);
  auto& rules = *policy.mutable_network_policies();
  if (const auto found = rules.find(name); found != rules.end()) {
    auto merged = found->second;
    if (auto result = merge_into(merged, rule, name, name, at); result.conflict != Conflict::none) return result.status;
    found->second = std::move(merged);
    return absl::OkStatus();
  }
  const bool proposed = std::any_of(rule.endpoints().begin(), rule.endpoints().end(), [](const auto& e) { return e.advisor_proposed(); });
  if (!proposed) {
    std::map<std::string, pb::NetworkPolicyRule*> ordered;
    for (auto& [key, own] : rules) {
      if (!key.starts_with(kProviderRulePrefix) && shares_endpoint(own, rule)) ordered.emplace(key, &own);
    }
    if (!ordered.empty()) {
      auto& [key, own] = *ordered.begin();
      auto merged = *own;
      const auto noted = at.warnings.size();
      const auto result = merge_into(merged, rule, key, name, at);
      if (result.conflict == Conflict::other) return result.status;
      if (result.conflict == Conflict::none) {
        *own = std::move(merged);
        return absl::OkStatus();
      }
      at.warnings.resize(noted);
      const auto message = result.status.message();
      at.warnings.push_back(cat("kept add-rule '", name, "' on its own rule instead of folding it into overlapping rule '", key,
                                "': ", std::string{message.data(), message.size()}));
    }
  }
  if (rule.name().empty()) rule.set_name(name);
  rules[name] = std::move(rule);
  return absl::OkStatus();
}

}  // namespace openshell::policy
