// Is a rule in effect already?
#include <algorithm>
#include <array>
#include <span>

#include "policy/matcher.hpp"
#include "policy/merge_parts.hpp"
#include "policy/rules.hpp"
#include "policy/text.hpp"
#include "policy/validate.hpp"

namespace openshell::policy {
namespace {

using text::cat;

template <class List>
bool contains_all(const List& have, const List& want) {
  return std::all_of(want.begin(), want.end(), [&](const auto& one) {
    return std::any_of(have.begin(), have.end(), [&](const auto& own) { return bytes_of(own) == bytes_of(one); });
  });
}

bool contains_texts(const google::protobuf::RepeatedPtrField<std::string>& have,
                    const google::protobuf::RepeatedPtrField<std::string>& want) {
  return std::all_of(want.begin(), want.end(), [&](const auto& one) { return std::find(have.begin(), have.end(), one) != have.end(); });
}

pb::NetworkEnforcementMode enforcement_of(const pb::NetworkEndpoint& endpoint) {
  return endpoint.enforcement() == pb::NETWORK_ENFORCEMENT_MODE_UNSPECIFIED ? pb::NETWORK_ENFORCEMENT_MODE_AUDIT : endpoint.enforcement();
}

// Fields of which an endpoint has one value: equal where the other asks for one.
bool single_values_cover(const pb::NetworkEndpoint& have, const pb::NetworkEndpoint& want) {
  if (!want.persisted_queries().empty() && want.persisted_queries() != have.persisted_queries()) return false;
  if (want.graphql_max_body_bytes() != 0 && want.graphql_max_body_bytes() != have.graphql_max_body_bytes()) return false;
  if (want.json_rpc_max_body_bytes() != 0 && want.json_rpc_max_body_bytes() != have.json_rpc_max_body_bytes()) return false;
  if (want.graphql_persisted_queries_size() > 0) {
    pb::NetworkEndpoint mine, theirs;
    *mine.mutable_graphql_persisted_queries() = have.graphql_persisted_queries();
    *theirs.mutable_graphql_persisted_queries() = want.graphql_persisted_queries();
    if (bytes_of(mine) != bytes_of(theirs)) return false;
  }
  if (!want.credential_signing().empty() &&
      (want.credential_signing() != have.credential_signing() || want.signing_service() != have.signing_service() ||
       want.signing_region() != have.signing_region())) {
    return false;
  }
  return !want.has_credential_binding() || bytes_of(want.credential_binding()) == bytes_of(have.credential_binding());
}

struct Pair {
  const pb::NetworkEndpoint& endpoint;
  std::uint32_t port;
  const std::string* binary;  // null: any
};

bool pair_covered(const pb::SandboxPolicy& policy, const Pair& pair) {
  return std::any_of(policy.network_policies().begin(), policy.network_policies().end(), [&](const auto& entry) {
    const auto& rule = entry.second;
    const bool binary = rule.binaries().empty() || (pair.binary != nullptr && paths_of(rule.binaries()).contains(*pair.binary));
    return binary && std::any_of(rule.endpoints().begin(), rule.endpoints().end(),
                                 [&](const auto& own) { return endpoint_covers(own, pair.endpoint, pair.port); });
  });
}

}  // namespace

bool endpoint_covers(const pb::NetworkEndpoint& have, const pb::NetworkEndpoint& want, std::uint32_t port) {
  if (!same_text(have.host(), want.host()) || have.path() != want.path()) return false;
  const auto ports = ports_of(have);
  if (port == 0 ? !ports.empty() : !ports.contains(port)) return false;
  if (!want.protocol().empty() && have.protocol() != want.protocol()) return false;
  if (want.tls() != pb::NETWORK_TLS_MODE_UNSPECIFIED && have.tls() != want.tls()) return false;
  if (want.enforcement() != pb::NETWORK_ENFORCEMENT_MODE_UNSPECIFIED && enforcement_of(have) != enforcement_of(want)) return false;
  if (want.access() != pb::NETWORK_ACCESS_PRESET_UNSPECIFIED && have.access() != want.access()) return false;
  const bool mcp = have.protocol() == "mcp" || want.protocol() == "mcp";
  if (mcp && contract_of(have) != contract_of(want)) return false;
  if (!contains_all(have.rules(), want.rules()) || !contains_all(have.deny_rules(), want.deny_rules())) return false;
  if (!contains_texts(have.allowed_ips(), want.allowed_ips())) return false;
  if (want.allow_encoded_slash() && !have.allow_encoded_slash()) return false;
  if (want.websocket_credential_rewrite() && !have.websocket_credential_rewrite()) return false;
  if (want.request_body_credential_rewrite() && !have.request_body_credential_rewrite()) return false;
  return single_values_cover(have, want);
}

bool covers(const pb::SandboxPolicy& policy, const pb::NetworkPolicyRule& rule) {
  if (rule.endpoints().empty()) return false;
  pb::SandboxPolicy own = policy;
  pb::SandboxPolicy asked;
  (*asked.mutable_network_policies())["asked"] = rule;
  for (auto* each : {&own, &asked}) {
    if (validate(*each).has_errors()) return false;
    normalize(*each, Provenance::keep);
  }
  const auto& wanted = asked.network_policies().at("asked");
  for (const auto& endpoint : wanted.endpoints()) {
    auto ports = ports_of(endpoint);
    if (ports.empty()) ports.insert(0);
    for (const auto port : ports) {
      if (wanted.binaries().empty() && !pair_covered(own, {endpoint, port, nullptr})) return false;
      for (const auto& binary : wanted.binaries()) {
        if (!pair_covered(own, {endpoint, port, &binary.path()})) return false;
      }
    }
  }
  return true;
}

bool expand_access(pb::NetworkEndpoint& endpoint) {
  if (endpoint.access() == pb::NETWORK_ACCESS_PRESET_UNSPECIFIED || endpoint.rules_size() > 0) return false;
  const auto protocol = parse_protocol(endpoint.protocol()).value_or(Protocol::none);
  const auto words = preset_words(endpoint, protocol);
  endpoint.set_access(pb::NETWORK_ACCESS_PRESET_UNSPECIFIED);
  if (protocol == Protocol::graphql) {
    // "*" is no operation type that may be stored: the three are written out.
    static constexpr std::array<std::string_view, 3> kEvery{"query", "mutation", "subscription"};
    const bool every = !words.empty() && words.front() == "*";
    for (const auto type : every ? std::span<const std::string_view>{kEvery} : words)
      endpoint.add_rules()->mutable_allow()->set_operation_type(std::string{type});
    return true;
  }
  for (const auto method : words) {
    auto& allow = *endpoint.add_rules()->mutable_allow();
    allow.set_method(std::string{method});
    allow.set_path("**");
  }
  return true;
}

std::string contract_of(const pb::NetworkEndpoint& endpoint) {
  if (endpoint.protocol() != "mcp") return cat("non-mcp(protocol='", endpoint.protocol(), "')");
  std::vector<std::string> versions{endpoint.mcp().versions().begin(), endpoint.mcp().versions().end()};
  if (versions.empty()) versions.emplace_back(kDefaultMcpVersion);
  std::sort(versions.begin(), versions.end());
  const bool strict = !endpoint.mcp().has_strict_tool_names() || endpoint.mcp().strict_tool_names();
  const auto limit = endpoint.json_rpc_max_body_bytes() == 0 ? kDefaultBodyLimit : endpoint.json_rpc_max_body_bytes();
  return cat("mcp(versions=", quoted_list({versions.begin(), versions.end()}), ", strict_tool_names=", strict ? "true" : "false",
             ", allow_all_known_mcp_methods=", endpoint.mcp().allow_all_known_mcp_methods() ? "true" : "false", ", max_body_bytes=", limit,
             ")");
}

}  // namespace openshell::policy
