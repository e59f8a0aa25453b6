// What the merge operations share. Internal.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "policy/merge.hpp"

namespace openshell::v1 {
class AddAllowRules;
class AddDenyRules;
}  // namespace openshell::v1

namespace openshell::policy {

std::set<std::uint32_t> ports_of(const pb::NetworkEndpoint& endpoint);
void set_ports(pb::NetworkEndpoint& endpoint, const std::set<std::uint32_t>& ports);
std::set<std::string> paths_of(const google::protobuf::RepeatedPtrField<pb::NetworkBinary>& binaries);
bool same_text(std::string_view a, std::string_view b);  ///< ignoring case and blanks around
/// Same host and path, and a port in common.
bool overlaps(const pb::NetworkEndpoint& a, const pb::NetworkEndpoint& b);
/// The same bytes for equal messages, maps included.
std::string bytes_of(const google::protobuf::Message& message);
/// `[443, 8443]`
std::string port_list(const std::set<std::uint32_t>& ports);
/// `["a", "b"]`
std::string quoted_list(const std::set<std::string>& items);

/// Whether `have`, on `port`, authorises at least what `want` asks for.
bool endpoint_covers(const pb::NetworkEndpoint& have, const pb::NetworkEndpoint& want, std::uint32_t port);

/// Writes the rules that the access preset stands for, and takes the preset away. False where there is none.
bool expand_access(pb::NetworkEndpoint& endpoint);

template <class Rule>
void append_unique(google::protobuf::RepeatedPtrField<Rule>& into, const google::protobuf::RepeatedPtrField<Rule>& from) {
  for (const auto& rule : from) {
    bool known = false;
    for (const auto& own : into) known = known || bytes_of(own) == bytes_of(rule);
    if (!known) *into.Add() = rule;
  }
}

/// Where an operation stands, and what it leaves to say.
struct MergeContext {
  int index = 0;
  std::vector<std::string>& warnings;
};

absl::Status add_rule(pb::SandboxPolicy& policy, const std::string& name, pb::NetworkPolicyRule rule, MergeContext& at);
absl::Status add_allow_rules(pb::SandboxPolicy& policy, const openshell::v1::AddAllowRules& operation, MergeContext& at);
absl::Status add_deny_rules(pb::SandboxPolicy& policy, const openshell::v1::AddDenyRules& operation, MergeContext& at);

/// `mcp(versions=..., ...)` or `non-mcp(protocol='rest')`
std::string contract_of(const pb::NetworkEndpoint& endpoint);

}  // namespace openshell::policy
