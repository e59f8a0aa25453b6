#include "policy/candidate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "policy/hash.hpp"
#include "policy/merge_parts.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using text::cat;

std::string text_of(const absl::Status& status) { return std::string{status.message().data(), status.message().size()}; }

std::string one_line(std::string text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += out.ends_with(':') ? " " : "; ";
    } else {
      out += c;
    }
  }
  return out;
}

// An endpoint as a contract for one port: markers of the gateway do not belong to it.
pb::NetworkEndpoint contract_at(pb::NetworkEndpoint endpoint, std::uint32_t port) {
  set_ports(endpoint, {port});
  endpoint.set_host(text::lower(endpoint.host()));
  endpoint.clear_advisor_proposed();
  endpoint.clear_provider_credentialed();
  endpoint.clear_token_grant_owner();
  return endpoint;
}

std::map<std::string, const pb::NetworkPolicyRule*> by_key(const pb::SandboxPolicy& policy) {
  std::map<std::string, const pb::NetworkPolicyRule*> out;
  for (const auto& [key, rule] : policy.network_policies()) out.emplace(key, &rule);
  return out;
}

// The one contract that is in force at host and port; nullopt where there is none.
absl::StatusOr<std::optional<pb::NetworkEndpoint>> contract_in_force(const pb::SandboxPolicy& effective, const std::string& host,
                                                                     std::uint32_t port) {
  std::map<std::string, pb::NetworkEndpoint> found;
  for (const auto& [key, rule] : effective.network_policies()) {
    for (const auto& endpoint : rule.endpoints()) {
      if (!same_text(endpoint.host(), host) || !ports_of(endpoint).contains(port)) continue;
      auto contract = contract_at(endpoint, port);
      found.emplace(bytes_of(contract), std::move(contract));
    }
  }
  if (found.empty()) return std::optional<pb::NetworkEndpoint>{};
  if (found.size() > 1) {
    return absl::FailedPreconditionError(
        cat("candidate canonicalization failed: cannot infer one existing endpoint contract for ", host, ":", port));
  }
  return std::optional<pb::NetworkEndpoint>{found.begin()->second};
}

std::string fresh_name(const std::string& wanted, const pb::SandboxPolicy& base, const pb::SandboxPolicy& effective) {
  const auto taken = [&](const std::string& name) {
    return base.network_policies().contains(name) || effective.network_policies().contains(name);
  };
  std::string name = wanted;
  for (int i = 2; taken(name); ++i) name = cat(wanted, "_", i);
  return name;
}

// The rule of the base that has this very endpoint for all the programs already, and the endpoint as it stands there.
const pb::NetworkPolicyRule* owner_of(const pb::SandboxPolicy& base, const pb::NetworkEndpoint& contract, std::uint32_t port,
                                      const std::set<std::string>& binaries, std::string& key, pb::NetworkEndpoint& endpoint) {
  for (const auto& [name, rule] : by_key(base)) {
    const auto listed = paths_of(rule->binaries());
    if (!listed.empty() && !std::includes(listed.begin(), listed.end(), binaries.begin(), binaries.end())) continue;
    for (const auto& own : rule->endpoints()) {
      if (!ports_of(own).contains(port) || bytes_of(contract_at(own, port)) != bytes_of(contract)) continue;
      key = name;
      endpoint = own;
      return rule;
    }
  }
  return nullptr;
}

absl::StatusOr<Candidate> canonicalise(const pb::SandboxPolicy& base, const pb::SandboxPolicy& effective, const std::string& rule_name,
                                       const pb::NetworkPolicyRule& proposed) {
  Candidate out;
  out.rule = proposed;
  const auto failed = [](std::string_view why) { return absl::FailedPreconditionError(cat("candidate canonicalization failed: ", why)); };
  if (proposed.endpoints_size() != 1) return failed("the proposal does not have exactly one endpoint");
  auto& endpoint = *out.rule.mutable_endpoints(0);
  const auto ports = ports_of(endpoint);
  if (endpoint.host().empty() || ports.size() != 1) return failed("the proposal does not name one host and one port");
  if (proposed.binaries().empty()) return failed("the proposal names no program");
  const auto port = *ports.begin();
  auto contract = contract_in_force(effective, endpoint.host(), port);
  if (!contract.ok()) return contract.status();
  if (*contract) {
    pb::NetworkEndpoint stored;
    if (owner_of(base, **contract, port, paths_of(proposed.binaries()), out.rule_name, stored) != nullptr) {
      const bool advisor = stored.advisor_proposed();
      endpoint = **contract;
      endpoint.set_advisor_proposed(advisor);
      return out;
    }
    endpoint = **contract;
  }
  endpoint.set_advisor_proposed(true);  // a program that was seen once never inherits the trust of a host that a person wrote down
  out.rule_name = fresh_name(rule_name, base, effective);
  out.rule.set_name(out.rule_name);
  return out;
}

}  // namespace

absl::StatusOr<Candidate> make_candidate(const pb::SandboxPolicy& base, const pb::SandboxPolicy& effective, const std::string& rule_name,
                                         const pb::NetworkPolicyRule& proposed, bool mechanical) {
  Candidate out{rule_name, proposed, {}};
  if (mechanical) {
    auto canonical = canonicalise(base, effective, rule_name, proposed);
    if (!canonical.ok()) return canonical;
    out = *std::move(canonical);
  } else {
    for (auto& endpoint : *out.rule.mutable_endpoints()) endpoint.set_advisor_proposed(true);
  }
  auto merged = merge_rule(base, out.rule_name, out.rule, Provenance::keep);
  if (!merged.ok()) return absl::FailedPreconditionError(cat("merge failed: ", one_line(text_of(merged.status()))));
  out.base = std::move(merged->policy);
  return out;
}

absl::Status check_candidate(const pb::SandboxPolicy& effective) {
  for (const auto& found : {validate(effective), find_ambiguities(effective)}) {
    if (!found.has_errors()) continue;
    return absl::FailedPreconditionError(
        cat("candidate invalid: ", one_line(text_of(found.status(absl::StatusCode::kFailedPrecondition, "")))));
  }
  return absl::OkStatus();
}

std::string rule_bytes(const std::string& name, const pb::NetworkPolicyRule& rule) {
  pb::SandboxPolicy alone;
  (*alone.mutable_network_policies())[name] = rule;
  normalize(alone, Provenance::keep);
  return canonical_bytes(alone);
}

}  // namespace openshell::policy
