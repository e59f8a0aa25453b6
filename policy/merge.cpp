#include "policy/merge.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <map>

#include "openshell.pb.h"
#include "policy/blocked_destination.hpp"
#include "policy/merge_parts.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using text::cat;
namespace v1 = openshell::v1;

absl::StatusOr<pb::SandboxPolicy> canonical_base(const pb::SandboxPolicy& base) {
  auto policy = base;
  if (policy.version() == 0) policy.set_version(1);
  if (auto status = validate(policy).status(absl::StatusCode::kFailedPrecondition, "current policy is invalid; "); !status.ok())
    return status;
  normalize(policy, Provenance::keep);
  return policy;
}

// A rule that came from outside, checked and in canonical form.
absl::StatusOr<pb::NetworkPolicyRule> fragment(const std::string& name, const pb::NetworkPolicyRule& rule, Provenance provenance,
                                               int index) {
  if (auto why = blocked_destination(rule); !why.empty()) return absl::InvalidArgumentError(why);
  pb::SandboxPolicy alone;
  alone.set_version(1);
  (*alone.mutable_network_policies())[name] = rule;
  const auto prefix = cat("merge operation ", index, " carries an invalid policy rule; ");
  if (auto status = validate(alone).status(absl::StatusCode::kInvalidArgument, prefix); !status.ok()) return status;
  normalize(alone, provenance);
  return alone.network_policies().at(name);
}

absl::Status apply_add_rule(pb::SandboxPolicy& policy, const v1::AddNetworkRule& operation, Provenance provenance, MergeContext& at) {
  const std::string name{text::trim(operation.rule_name())};
  const auto here = cat("merge_operations[", at.index, "].add_rule.");
  if (name.empty()) return absl::InvalidArgumentError(cat(here, "rule_name is required"));
  if (operation.rule().endpoints_size() == 0) return absl::InvalidArgumentError(cat(here, "rule must contain at least one endpoint"));
  if (name.starts_with(kProviderRulePrefix)) {
    return absl::InvalidArgumentError(
        cat("merge operation add_rule rule_name '", name, "' uses reserved '_provider_' prefix for provider composition"));
  }
  auto rule = fragment(name, operation.rule(), provenance, at.index);
  if (!rule.ok()) return rule.status();
  return add_rule(policy, name, *std::move(rule), at);
}

absl::Status apply_remove_endpoint(pb::SandboxPolicy& policy, const v1::RemoveNetworkEndpoint& operation, int index) {
  if (text::trim(operation.host()).empty() || operation.port() == 0) {
    return absl::InvalidArgumentError(cat("merge_operations[", index, "].remove_endpoint requires host and non-zero port"));
  }
  if (operation.port() > 65'535)
    return absl::InvalidArgumentError(cat("invalid endpoint reference '", operation.host(), ":", operation.port(), "'"));
  const std::string only{text::trim(operation.rule_name())};
  auto& rules = *policy.mutable_network_policies();
  for (auto rule = rules.begin(); rule != rules.end();) {
    auto& endpoints = *rule->second.mutable_endpoints();
    bool taken = false;
    for (int i = endpoints.size() - 1; i >= 0 && (only.empty() || rule->first == only); --i) {
      auto ports = ports_of(endpoints[i]);
      if (!same_text(endpoints[i].host(), operation.host()) || ports.erase(operation.port()) == 0) continue;
      taken = true;
      ports.empty() ? endpoints.DeleteSubrange(i, 1) : set_ports(endpoints[i], ports);
    }
    rule = taken && endpoints.empty() ? rules.erase(rule) : std::next(rule);
  }
  return absl::OkStatus();
}

absl::Status apply_remove_binary(pb::SandboxPolicy& policy, const std::string& name, const std::string& binary, int index) {
  if (name.empty() || binary.empty()) {
    return absl::InvalidArgumentError(cat("merge_operations[", index, "].remove_binary requires rule_name and binary_path"));
  }
  auto& rules = *policy.mutable_network_policies();
  const auto rule = rules.find(name);
  if (rule == rules.end()) return absl::OkStatus();
  auto& binaries = *rule->second.mutable_binaries();
  if (binaries.empty()) {
    return absl::FailedPreconditionError(
        cat("merge operation ", index, " cannot remove binary '", binary, "' from rule '", name,
            "' because the rule authorizes any binary; replace the policy with an explicit binary list or remove the rule"));
  }
  for (int i = binaries.size() - 1; i >= 0; --i) {
    if (binaries[i].path() == binary) binaries.DeleteSubrange(i, 1);
  }
  if (binaries.empty()) rules.erase(rule);  // without binaries it would hold for any
  return absl::OkStatus();
}

absl::Status apply(pb::SandboxPolicy& policy, const v1::PolicyMergeOperation& operation, Provenance provenance, MergeContext& at) {
  switch (operation.operation_case()) {
    case v1::PolicyMergeOperation::kAddRule:
      return apply_add_rule(policy, operation.add_rule(), provenance, at);
    case v1::PolicyMergeOperation::kRemoveEndpoint:
      return apply_remove_endpoint(policy, operation.remove_endpoint(), at.index);
    case v1::PolicyMergeOperation::kRemoveRule:
      if (operation.remove_rule().rule_name().empty()) {
        return absl::InvalidArgumentError(cat("merge_operations[", at.index, "].remove_rule.rule_name is required"));
      }
      policy.mutable_network_policies()->erase(operation.remove_rule().rule_name());
      return absl::OkStatus();
    case v1::PolicyMergeOperation::kAddDenyRules:
      return add_deny_rules(policy, operation.add_deny_rules(), at);
    case v1::PolicyMergeOperation::kAddAllowRules:
      return add_allow_rules(policy, operation.add_allow_rules(), at);
    case v1::PolicyMergeOperation::kRemoveBinary:
      return apply_remove_binary(policy, operation.remove_binary().rule_name(), operation.remove_binary().binary_path(), at.index);
    default:
      return absl::InvalidArgumentError(cat("merge_operations[", at.index, "] is missing an operation"));
  }
}

// Contracts of inspection that stand at one host and port, by what they are. L4 endpoints have none.
using Contracts = std::map<std::pair<std::string, std::uint32_t>, std::set<std::string>>;
Contracts contracts_in(const pb::SandboxPolicy& policy) {
  Contracts out;
  for (const auto& [key, rule] : policy.network_policies()) {
    for (const auto& endpoint : rule.endpoints()) {
      if (endpoint.protocol().empty()) continue;
      for (const auto port : ports_of(endpoint)) out[{text::lower(endpoint.host()), port}].insert(contract_of(endpoint));
    }
  }
  return out;
}

absl::Status check_contracts(const pb::SandboxPolicy& before, const pb::SandboxPolicy& after) {
  const auto old = contracts_in(before);
  for (const auto& [place, contracts] : contracts_in(after)) {
    const bool mcp = std::any_of(contracts.begin(), contracts.end(), [](const std::string& text) { return text.starts_with("mcp("); });
    if (contracts.size() < 2 || !mcp) continue;
    const auto known = old.find(place);
    const bool fresh = known == old.end() || std::any_of(contracts.begin(), contracts.end(),
                                                         [&](const std::string& text) { return !known->second.contains(text); });
    if (!fresh) continue;
    return absl::FailedPreconditionError(
        cat(place.first, ":", place.second, " would carry more than one L7 inspection contract (",
            text::join({contracts.begin(), contracts.end()}, ", "),
            "); the sandbox resolves one contract per host and port, so these cannot coexist even in different rules or under different "
            "paths"));
  }
  return absl::OkStatus();
}

absl::Status check_result(const pb::SandboxPolicy& before, pb::SandboxPolicy& after) {
  if (auto status = check_contracts(before, after); !status.ok()) return status;
  normalize(after, Provenance::keep);
  return validate(after).status(absl::StatusCode::kInternal, "merge produced an invalid policy; ");
}

}  // namespace

absl::StatusOr<Merged> merge(const pb::SandboxPolicy& base, const MergeOperations& operations, Provenance incoming) {
  const auto before = canonical_base(base);
  if (!before.ok()) return before.status();
  Merged out{*before, {}};
  for (int i = 0; i < operations.size(); ++i) {
    MergeContext at{i, out.warnings};
    if (auto status = apply(out.policy, operations[i], incoming, at); !status.ok()) return status;
  }
  if (auto status = check_result(*before, out.policy); !status.ok()) return status;
  return out;
}

absl::StatusOr<Merged> merge_rule(const pb::SandboxPolicy& base, const std::string& name, const pb::NetworkPolicyRule& rule,
                                  Provenance incoming, int index) {
  const auto before = canonical_base(base);
  if (!before.ok()) return before.status();
  Merged out{*before, {}};
  MergeContext at{index, out.warnings};
  v1::AddNetworkRule operation;
  operation.set_rule_name(name);
  *operation.mutable_rule() = rule;
  if (auto status = apply_add_rule(out.policy, operation, incoming, at); !status.ok()) return status;
  if (auto status = check_result(*before, out.policy); !status.ok()) return status;
  return out;
}

absl::StatusOr<pb::SandboxPolicy> remove_binary(const pb::SandboxPolicy& base, const std::string& name, const std::string& binary,
                                                int index) {
  auto policy = canonical_base(base);
  if (!policy.ok()) return policy;
  if (auto status = apply_remove_binary(*policy, name, binary, index); !status.ok()) return status;
  return policy;
}

// --- parts

std::set<std::uint32_t> ports_of(const pb::NetworkEndpoint& endpoint) {
  std::set<std::uint32_t> ports{endpoint.ports().begin(), endpoint.ports().end()};
  if (ports.empty() && endpoint.port() != 0) ports.insert(endpoint.port());
  return ports;
}

void set_ports(pb::NetworkEndpoint& endpoint, const std::set<std::uint32_t>& ports) {
  *endpoint.mutable_ports() = {ports.begin(), ports.end()};
  endpoint.set_port(ports.empty() ? 0 : *ports.begin());
}

std::set<std::string> paths_of(const google::protobuf::RepeatedPtrField<pb::NetworkBinary>& binaries) {
  std::set<std::string> paths;
  for (const auto& binary : binaries) paths.insert(binary.path());
  return paths;
}

bool same_text(std::string_view a, std::string_view b) { return text::lower(text::trim(a)) == text::lower(text::trim(b)); }

bool overlaps(const pb::NetworkEndpoint& a, const pb::NetworkEndpoint& b) {
  if (!same_text(a.host(), b.host()) || a.path() != b.path()) return false;
  const auto mine = ports_of(a);
  const auto theirs = ports_of(b);
  return std::any_of(theirs.begin(), theirs.end(), [&](auto port) { return mine.contains(port); });
}

std::string bytes_of(const google::protobuf::Message& message) {
  std::string out;
  {
    google::protobuf::io::StringOutputStream raw{&out};
    google::protobuf::io::CodedOutputStream coded{&raw};
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return out;
}

std::string port_list(const std::set<std::uint32_t>& ports) {
  std::string out;
  for (auto port : ports) out += cat(out.empty() ? "" : ", ", port);
  return cat("[", out, "]");
}

std::string quoted_list(const std::set<std::string>& items) {
  std::string out;
  for (const auto& item : items) out += cat(out.empty() ? "\"" : ", \"", item, "\"");
  return cat("[", out, "]");
}

}  // namespace openshell::policy
