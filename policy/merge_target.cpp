// Adding request rules to one endpoint. The operation has to name the endpoint completely - rule, host, every port, every binary - so that
// its author knows what he widens; nothing of that is changed.
#include <absl/status/status.h>

#include <algorithm>

#include "openshell.pb.h"
#include "policy/blocked_destination.hpp"
#include "policy/merge_parts.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using text::cat;

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

std::string quoted_path(const openshell::v1::L7RuleTarget& target) {
  return target.has_path() ? cat("Some(\"", target.path(), "\")") : "None";
}

// A pattern that no endpoint could have.
bool bad_wildcard(const std::string& host) {
  if (host.find('*') == std::string::npos) return false;
  pb::SandboxPolicy alone;
  alone.set_version(1);
  auto& endpoint = *(*alone.mutable_network_policies())["target"].add_endpoints();
  endpoint.set_host(host);
  set_ports(endpoint, {443});
  return validate(alone).has_errors();
}

std::string_view word(pb::NetworkAccessPreset access) {
  return access == pb::NETWORK_ACCESS_PRESET_READ_ONLY    ? "read-only"
         : access == pb::NETWORK_ACCESS_PRESET_READ_WRITE ? "read-write"
                                                          : "full";
}

// Why a target is none; empty when it is.
std::string target_fault(const openshell::v1::L7RuleTarget& target) {
  const std::string& name = target.rule_name();
  if (name.empty() || text::trim(name) != name || has_control(name)) return "rule_name must name a sandbox-owned rule";
  if (name.starts_with(kProviderRulePrefix)) return "provider-owned rules cannot receive L7 appends";
  const std::string& host = target.host();
  if (host.empty() || has_control(host) || host.find_first_of(" /?#@") != std::string::npos || bad_wildcard(host))
    return "host must be a nonempty endpoint host selector";
  const bool ports = !target.ports().empty() &&
                     std::all_of(target.ports().begin(), target.ports().end(), [](auto port) { return port >= 1 && port <= 65'535; });
  if (!ports) return "ports must declare a nonempty set in 1..=65535";
  const bool binaries = std::all_of(target.binaries().begin(), target.binaries().end(),
                                    [](const auto& binary) { return !text::trim(binary.path()).empty(); });
  if (!binaries) return "restricted binary scope must contain nonempty binary paths; use Any for an any-binary rule";
  return {};
}

absl::StatusOr<pb::NetworkEndpoint*> find_endpoint(pb::SandboxPolicy& policy, const openshell::v1::L7RuleTarget& target) {
  const std::set<std::uint32_t> ports{target.ports().begin(), target.ports().end()};
  const std::string head = cat("L7 target in rule '", target.rule_name(), "' ");
  const std::string place = cat("for ", target.host(), " on ports ", port_list(ports));
  auto& rules = *policy.mutable_network_policies();
  const auto rule = rules.find(target.rule_name());
  std::vector<pb::NetworkEndpoint*> found;
  if (rule != rules.end()) {
    for (auto& endpoint : *rule->second.mutable_endpoints()) {
      if (!same_text(endpoint.host(), target.host()) || (target.has_path() && endpoint.path() != target.path())) continue;
      const auto own = ports_of(endpoint);
      if (std::any_of(ports.begin(), ports.end(), [&](auto port) { return own.contains(port); })) found.push_back(&endpoint);
    }
  }
  if (found.empty()) return absl::NotFoundError(cat(head, place, " with endpoint path ", quoted_path(target), " was not found"));
  if (found.size() > 1) {
    std::set<std::string> paths;
    for (const auto* endpoint : found) paths.insert(endpoint->path());
    return absl::FailedPreconditionError(
        cat(head, place, " matches endpoint paths ", quoted_list(paths), "; declare the exact endpoint path"));
  }
  const auto declared = target.any_binary() ? std::set<std::string>{} : paths_of(target.binaries());
  const auto stored = paths_of(rule->second.binaries());
  if (declared != stored) {
    const auto shown = [](const std::set<std::string>& paths) {
      return quoted_list(paths.empty() ? std::set<std::string>{"any binary"} : paths);
    };
    return absl::FailedPreconditionError(cat(head, "declares binary scope ", shown(declared), ", but the append affects ", shown(stored),
                                             "; declare the complete binary scope"));
  }
  if (ports_of(*found.front()) != ports) {
    return absl::FailedPreconditionError(cat(head, "for ", target.host(), " declares ports ", port_list(ports), ", but the append affects ",
                                             port_list(ports_of(*found.front())), "; declare the complete endpoint port set"));
  }
  return found.front();
}

absl::StatusOr<pb::NetworkEndpoint*> resolve(pb::SandboxPolicy& policy, bool given, const openshell::v1::L7RuleTarget& target, int index) {
  if (!given) return absl::InvalidArgumentError(cat("merge_operations[", index, "] requires an L7 target"));
  if (target.any_binary() == (target.binaries_size() > 0)) {
    return absl::InvalidArgumentError(
        cat("merge_operations[", index, "].target requires exactly one of any_binary=true or nonempty binaries"));
  }
  if (const auto fault = target_fault(target); !fault.empty())
    return absl::InvalidArgumentError(cat("merge operation ", index, " has an invalid L7 target: ", fault));
  auto endpoint = find_endpoint(policy, target);
  if (!endpoint.ok()) return endpoint;
  const std::string place = cat("endpoint ", target.host(), ":", target.ports(0));
  const auto& protocol = (*endpoint)->protocol();
  if (protocol.empty()) return absl::FailedPreconditionError(cat(place, " has no L7 inspection configured (protocol is empty)"));
  if (protocol != "rest" && protocol != "websocket") {
    return absl::FailedPreconditionError(
        cat(place, " uses unsupported protocol '", protocol, "'; this operation currently supports only protocol 'rest' or 'websocket'"));
  }
  return endpoint;
}

}  // namespace

absl::Status add_allow_rules(pb::SandboxPolicy& policy, const openshell::v1::AddAllowRules& operation, MergeContext& at) {
  const std::string here = cat("merge_operations[", at.index, "].add_allow_rules");
  if (operation.rules_size() == 0) return absl::InvalidArgumentError(cat(here, " requires at least one allow rule"));
  for (const auto& rule : operation.rules()) {
    if (!rule.has_allow()) return absl::InvalidArgumentError(cat(here, " rules must include allow payloads"));
  }
  pb::NetworkPolicyRule named;
  named.add_endpoints()->set_host(operation.target().host());
  if (auto why = blocked_destination(named); !why.empty()) return absl::InvalidArgumentError(why);
  auto endpoint = resolve(policy, operation.has_target(), operation.target(), at.index);
  if (!endpoint.ok()) return endpoint.status();
  const auto preset = (*endpoint)->access();
  if (expand_access(**endpoint)) {
    at.warnings.push_back(cat("expanded access preset '", word(preset), "' to explicit rules for endpoint ", operation.target().host(), ":",
                              operation.target().ports(0)));
  }
  append_unique(*(*endpoint)->mutable_rules(), operation.rules());
  return absl::OkStatus();
}

absl::Status add_deny_rules(pb::SandboxPolicy& policy, const openshell::v1::AddDenyRules& operation, MergeContext& at) {
  if (operation.deny_rules_size() == 0) {
    return absl::InvalidArgumentError(cat("merge_operations[", at.index, "].add_deny_rules requires at least one deny rule"));
  }
  auto endpoint = resolve(policy, operation.has_target(), operation.target(), at.index);
  if (!endpoint.ok()) return endpoint.status();
  if ((*endpoint)->access() == pb::NETWORK_ACCESS_PRESET_UNSPECIFIED && (*endpoint)->rules_size() == 0) {
    return absl::FailedPreconditionError(cat("endpoint ", operation.target().host(), ":", operation.target().ports(0),
                                             " has no base allow set; configure access or explicit allow rules before adding deny rules"));
  }
  append_unique(*(*endpoint)->mutable_deny_rules(), operation.deny_rules());
  return absl::OkStatus();
}

}  // namespace openshell::policy
