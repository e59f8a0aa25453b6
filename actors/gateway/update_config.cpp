#include "actors/gateway/update_config.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>

#include <algorithm>
#include <set>

#include "api/errors.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"
#include "policy/validate.hpp"
#include "sandbox.pb.h"

namespace openshell::gateway {
namespace {

namespace pb = openshell::v1;
namespace sb = openshell::sandbox::v1;
using api::invalid_field;

absl::Status check_global(const pb::UpdateConfigRequest& request) {
  if (!request.annotations().empty()) return invalid_field("annotations", "annotations are only supported for sandbox-scoped updates");
  if (request.merge_operations_size() > 0)
    return invalid_field("merge_operations", "merge_operations are not supported for global policy updates");
  if (request.has_policy() && request.delete_setting())
    return invalid_field("delete_setting", "delete_setting cannot be combined with policy payload");
  if (request.setting_key() == "policy" && !request.delete_setting()) {
    return invalid_field("setting_key", "reserved key 'policy' must be set via the policy field");
  }
  return absl::OkStatus();
}

absl::Status check_supervisor(const pb::UpdateConfigRequest& request) {
  if (request.global()) return absl::PermissionDeniedError("sandbox callers cannot mutate global config");
  if (request.delete_setting()) return absl::PermissionDeniedError("sandbox callers cannot delete settings");
  if (!request.has_policy()) return absl::PermissionDeniedError("sandbox callers may only perform sandbox policy sync");
  return absl::OkStatus();
}

std::set<std::uint32_t> ports_of(const sb::NetworkEndpoint& endpoint) {
  std::set<std::uint32_t> ports{endpoint.ports().begin(), endpoint.ports().end()};
  if (ports.empty() && endpoint.port() != 0) ports.insert(endpoint.port());
  return ports;
}

void set_ports(sb::NetworkEndpoint& endpoint, const std::set<std::uint32_t>& ports) {
  endpoint.clear_ports();
  for (auto port : ports) endpoint.add_ports(port);
  endpoint.set_port(ports.empty() ? 0 : *ports.begin());
}

std::set<std::string> binaries_of(const google::protobuf::RepeatedPtrField<sb::NetworkBinary>& list) {
  std::set<std::string> paths;
  for (const auto& binary : list) paths.insert(binary.path());
  return paths;
}

bool same_host(const std::string& a, const std::string& b) {
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(a), absl::StripAsciiWhitespace(b));
}

/// One rule into the policy. Where the name is taken the rule must be for the same binaries: a merge never grants a pair that nobody
/// declared.
absl::Status add_rule(sb::SandboxPolicy& policy, const std::string& at, const pb::AddNetworkRule& operation) {
  const std::string name{absl::StripAsciiWhitespace(operation.rule_name())};
  if (name.empty()) return invalid_field("merge_operations", cat(at, ".add_rule.rule_name is required"));
  if (operation.rule().endpoints_size() == 0)
    return invalid_field("merge_operations", cat(at, ".add_rule.rule must contain at least one endpoint"));
  if (name.starts_with(policy::kProviderRulePrefix)) {
    return invalid_field("merge_operations",
                         cat("merge operation add_rule rule_name '", name, "' uses reserved '_provider_' prefix for provider composition"));
  }
  for (const auto& endpoint : operation.rule().endpoints()) {
    if (same_host(endpoint.host(), "localhost")) {
      return invalid_field(
          "merge_operations",
          "proposed rule endpoint host 'localhost' is always blocked; the proxy will deny traffic to loopback regardless of policy");
    }
  }
  auto& rules = *policy.mutable_network_policies();
  const auto it = rules.find(name);
  if (it == rules.end()) {
    auto& rule = rules[name];
    rule = operation.rule();
    if (rule.name().empty()) rule.set_name(name);
    return absl::OkStatus();
  }
  auto& rule = it->second;
  if (binaries_of(rule.binaries()) != binaries_of(operation.rule().binaries())) {
    return absl::FailedPreconditionError(
        cat("rule '", name, "' exists for other binaries; choose another rule name or name exactly its binaries"));
  }
  for (const auto& incoming : operation.rule().endpoints()) {
    const auto clash = std::find_if(rule.endpoints().begin(), rule.endpoints().end(), [&](const auto& existing) {
      if (!same_host(existing.host(), incoming.host()) || existing.path() != incoming.path()) return false;
      const auto mine = ports_of(existing);
      for (auto port : ports_of(incoming)) {
        if (mine.contains(port)) return true;
      }
      return false;
    });
    if (clash == rule.endpoints().end()) {
      *rule.add_endpoints() = incoming;
      continue;
    }
    auto a = *clash;
    auto b = incoming;
    set_ports(a, ports_of(a));
    set_ports(b, ports_of(b));
    if (a.SerializeAsString() != b.SerializeAsString()) {
      return absl::FailedPreconditionError(cat("rule '", name, "' already has endpoint '", incoming.host(), "' with other options"));
    }
  }
  return absl::OkStatus();
}

absl::Status remove_endpoint(sb::SandboxPolicy& policy, const std::string& at, const pb::RemoveNetworkEndpoint& operation) {
  if (absl::StripAsciiWhitespace(operation.host()).empty() || operation.port() == 0) {
    return invalid_field("merge_operations", cat(at, ".remove_endpoint requires host and non-zero port"));
  }
  auto& rules = *policy.mutable_network_policies();
  for (auto rule = rules.begin(); rule != rules.end();) {
    if (!operation.rule_name().empty() && rule->first != absl::StripAsciiWhitespace(operation.rule_name())) {
      ++rule;
      continue;
    }
    auto& endpoints = *rule->second.mutable_endpoints();
    for (int i = endpoints.size() - 1; i >= 0; --i) {
      if (!same_host(endpoints[i].host(), operation.host())) continue;
      auto ports = ports_of(endpoints[i]);
      if (ports.erase(operation.port()) == 0) continue;
      ports.empty() ? endpoints.DeleteSubrange(i, 1) : set_ports(endpoints[i], ports);
    }
    rule = endpoints.empty() ? rules.erase(rule) : std::next(rule);
  }
  return absl::OkStatus();
}

absl::Status remove_binary(sb::SandboxPolicy& policy, const std::string& at, const pb::RemoveNetworkBinary& operation) {
  if (operation.rule_name().empty() || operation.binary_path().empty()) {
    return invalid_field("merge_operations", cat(at, ".remove_binary requires rule_name and binary_path"));
  }
  auto& rules = *policy.mutable_network_policies();
  const auto it = rules.find(operation.rule_name());
  if (it == rules.end()) return absl::OkStatus();
  auto& binaries = *it->second.mutable_binaries();
  if (binaries.empty()) {
    return absl::FailedPreconditionError(
        cat("rule '", operation.rule_name(), "' holds for any binary; a single one cannot be removed from it"));
  }
  for (int i = binaries.size() - 1; i >= 0; --i) {
    if (binaries[i].path() == operation.binary_path()) binaries.DeleteSubrange(i, 1);
  }
  if (binaries.empty()) rules.erase(it);  // never leaves a rule for any binary
  return absl::OkStatus();
}

/// The one endpoint that a target declares completely.
absl::StatusOr<sb::NetworkEndpoint*> resolve(sb::SandboxPolicy& policy, const std::string& at, const pb::L7RuleTarget& target) {
  if (target.any_binary() == (target.binaries_size() > 0)) {
    return invalid_field("merge_operations", cat(at, ".target requires exactly one of any_binary=true or nonempty binaries"));
  }
  auto& rules = *policy.mutable_network_policies();
  const auto it = rules.find(target.rule_name());
  if (it == rules.end()) return absl::NotFoundError(cat("rule '", target.rule_name(), "' is not in the policy"));
  const std::set<std::uint32_t> ports{target.ports().begin(), target.ports().end()};
  sb::NetworkEndpoint* found = nullptr;
  for (auto& endpoint : *it->second.mutable_endpoints()) {
    if (!same_host(endpoint.host(), target.host()) || (target.has_path() && endpoint.path() != target.path())) continue;
    const auto mine = ports_of(endpoint);
    if (std::none_of(ports.begin(), ports.end(), [&](auto port) { return mine.contains(port); })) continue;
    if (found != nullptr)
      return absl::FailedPreconditionError(cat("target in rule '", target.rule_name(), "' is ambiguous: name its path"));
    found = &endpoint;
  }
  if (found == nullptr)
    return absl::NotFoundError(cat("rule '", target.rule_name(), "' has no endpoint '", target.host(), "' on these ports"));
  if (binaries_of(it->second.binaries()) != binaries_of(target.binaries())) {
    return absl::FailedPreconditionError(cat("target binaries differ from those of rule '", target.rule_name(), "'"));
  }
  if (ports_of(*found) != ports)
    return absl::FailedPreconditionError(cat("target ports differ from those of endpoint '", target.host(), "'"));
  if (found->protocol().empty() || found->protocol() == "tcp") {
    return absl::FailedPreconditionError(cat("endpoint '", target.host(), "' is not inspected: it has no request rules"));
  }
  return found;
}

template <class Rule>
bool contains(const google::protobuf::RepeatedPtrField<Rule>& list, const Rule& rule) {
  return std::any_of(list.begin(), list.end(), [&](const Rule& own) { return own.SerializeAsString() == rule.SerializeAsString(); });
}

absl::Status add_deny(sb::SandboxPolicy& policy, const std::string& at, const pb::AddDenyRules& operation) {
  if (operation.deny_rules_size() == 0)
    return invalid_field("merge_operations", cat(at, ".add_deny_rules requires at least one deny rule"));
  if (!operation.has_target()) return invalid_field("merge_operations", cat(at, " requires an L7 target"));
  auto endpoint = resolve(policy, at, operation.target());
  if (!endpoint.ok()) return endpoint.status();
  if ((*endpoint)->access() == sb::NETWORK_ACCESS_PRESET_UNSPECIFIED && (*endpoint)->rules_size() == 0) {
    return absl::FailedPreconditionError(cat("endpoint '", operation.target().host(), "' has no allow base"));
  }
  for (const auto& rule : operation.deny_rules()) {
    if (!contains((*endpoint)->deny_rules(), rule)) *(*endpoint)->add_deny_rules() = rule;
  }
  return absl::OkStatus();
}

absl::Status add_allow(sb::SandboxPolicy& policy, const std::string& at, const pb::AddAllowRules& operation) {
  if (operation.rules_size() == 0) return invalid_field("merge_operations", cat(at, ".add_allow_rules requires at least one allow rule"));
  for (const auto& rule : operation.rules()) {
    if (!rule.has_allow()) return invalid_field("merge_operations", cat(at, ".add_allow_rules rules must include allow payloads"));
  }
  if (!operation.has_target()) return invalid_field("merge_operations", cat(at, " requires an L7 target"));
  auto endpoint = resolve(policy, at, operation.target());
  if (!endpoint.ok()) return endpoint.status();
  if ((*endpoint)->access() != sb::NETWORK_ACCESS_PRESET_UNSPECIFIED) {
    return absl::FailedPreconditionError(cat("endpoint '", operation.target().host(), "' has an access preset; replace it by rules first"));
  }
  for (const auto& rule : operation.rules()) {
    if (!contains((*endpoint)->rules(), rule)) *(*endpoint)->add_rules() = rule;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UpdateKind> classify_update(const pb::UpdateConfigRequest& request, const Caller& caller) {
  const bool setting = !absl::StripAsciiWhitespace(request.setting_key()).empty();
  const int payloads = (request.has_policy() ? 1 : 0) + (setting ? 1 : 0) + (request.merge_operations_size() > 0 ? 1 : 0);
  if (caller.kind == Caller::Kind::supervisor) {
    if (auto status = check_supervisor(request); !status.ok()) return status;
  }
  if (payloads > 1) return absl::InvalidArgumentError("policy, setting_key, and merge_operations are mutually exclusive");
  if (payloads == 0) return absl::InvalidArgumentError("one of policy, setting_key, or merge_operations must be provided");
  if (request.global()) {
    if (auto status = check_global(request); !status.ok()) return status;
  } else if (request.setting_key() == "policy") {
    return invalid_field("setting_key", "reserved key 'policy' must be set via policy commands");
  }
  return request.has_policy() ? UpdateKind::policy : setting ? UpdateKind::setting : UpdateKind::merge;
}

absl::StatusOr<sb::SandboxPolicy> merge_policy(const sb::SandboxPolicy& base, const pb::UpdateConfigRequest& request) {
  auto policy = base;
  if (policy.version() == 0) policy.set_version(1);
  for (int i = 0; i < request.merge_operations_size(); ++i) {
    const auto& operation = request.merge_operations(i);
    const auto at = cat("merge_operations[", i, "]");
    absl::Status status;
    switch (operation.operation_case()) {
      case pb::PolicyMergeOperation::kAddRule:
        status = add_rule(policy, at, operation.add_rule());
        break;
      case pb::PolicyMergeOperation::kRemoveEndpoint:
        status = remove_endpoint(policy, at, operation.remove_endpoint());
        break;
      case pb::PolicyMergeOperation::kRemoveRule:
        if (operation.remove_rule().rule_name().empty()) {
          status = invalid_field("merge_operations", cat(at, ".remove_rule.rule_name is required"));
        } else {
          policy.mutable_network_policies()->erase(operation.remove_rule().rule_name());
        }
        break;
      case pb::PolicyMergeOperation::kAddDenyRules:
        status = add_deny(policy, at, operation.add_deny_rules());
        break;
      case pb::PolicyMergeOperation::kAddAllowRules:
        status = add_allow(policy, at, operation.add_allow_rules());
        break;
      case pb::PolicyMergeOperation::kRemoveBinary:
        status = remove_binary(policy, at, operation.remove_binary());
        break;
      default:
        status = invalid_field("merge_operations", cat(at, " is missing an operation"));
    }
    if (!status.ok()) return status;
  }
  return policy;
}

}  // namespace openshell::gateway
