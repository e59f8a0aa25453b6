#include "egress/pipeline/open.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "egress/decisions.hpp"
#include "egress/destination/address_rules.hpp"
#include "egress/dns/names.hpp"

namespace openshell::egress {
namespace {

constexpr std::string_view kPolicyDetail = "transparent_tcp_policy_denied";
constexpr std::string_view kDestinationDetail = "transparent_tcp_destination_denied";
constexpr std::string_view kOpenStage = "transparent_tcp_connect";

OpenRefusal policy_denied(std::string reason, bool event = true) {
  return {DenialKind::kPolicyDenied, std::move(reason), kPolicyDetail, event ? kOpenStage : "", "transparent_tcp_policy", true};
}

OpenRefusal invalid_destination(std::string reason, std::string_view detail, std::string_view group) {
  return {DenialKind::kInvalidDestination, std::move(reason), detail, "", group, false};
}

std::string_view describe(dns::LookupFailure failure) {
  switch (failure) {
    case dns::LookupFailure::kReserved:
      return "reserved address";
    case dns::LookupFailure::kExpired:
      return "mapping expired";
    case dns::LookupFailure::kStale:
      return "mapping is stale since the policy changed";
    default:
      return "mapping missing";
  }
}

/// A policy is there, and it is not quarantined.
std::optional<OpenRefusal> have_generation(OpenContext& context) {
  if (!context.generation || context.core.stopping) {
    return OpenRefusal{
        DenialKind::kMediationUnavailable, "no policy is loaded", "transparent_tcp_unavailable", "", "transparent_tcp_policy", false};
  }
  if (context.core.relays.size() >= context.core.options.max_streams) {
    return OpenRefusal{DenialKind::kResourceExhausted,
                       "too many live connections",
                       "transparent_tcp_resource_exhausted",
                       "",
                       "transparent_tcp_policy",
                       false};
  }
  if (!context.generation->matcher) {
    auto refusal = policy_denied(context.generation->quarantine_reason, false);
    refusal.explainable = false;
    return refusal;
  }
  return std::nullopt;
}

/// The service of the supervisor itself. It needs no rule, and no rule opens another port of it.
std::optional<OpenRefusal> find_policy_local(OpenContext& context) {
  constexpr Port kHttp{80};
  context.source = OpenContext::Source::kPolicyLocal;
  context.host = dns::kPolicyLocalName;
  if (context.intent.port == kHttp && context.core.options.local_api) return std::nullopt;
  return invalid_destination("policy.local is served at http://policy.local only", "transparent_tcp_policy_local_invalid_destination",
                             "transparent_tcp_mapping");
}

/// A proxy for clients that insist on one. It grants nothing: what they ask of it is decided like any other open.
std::optional<OpenRefusal> find_proxy_local(OpenContext& context) {
  constexpr Port kProxy{3128};
  context.source = OpenContext::Source::kProxyLocal;
  context.host = dns::kProxyLocalName;
  if (context.intent.port == kProxy) return std::nullopt;
  return invalid_destination("proxy.local is served at port 3128 only", "transparent_tcp_mapping_denied", "transparent_tcp_mapping");
}

/// Its own services are decided by nothing but their address and who calls.
bool is_own_service(const OpenContext& context) {
  return context.source == OpenContext::Source::kPolicyLocal || context.source == OpenContext::Source::kProxyLocal;
}

/// What the address stands for.
std::optional<OpenRefusal> find_destination(OpenContext& context) {
  if (context.intent.address.unmapped() == dns::MappingTable::policy_local()) return find_policy_local(context);
  if (context.intent.address.unmapped() == dns::MappingTable::proxy_local()) return find_proxy_local(context);
  const auto found = context.core.dns.find(context.intent.address);
  if (const auto* mapping = std::get_if<const dns::Mapping*>(&found)) {
    context.source = OpenContext::Source::kMapping;
    context.host = (*mapping)->name;
    context.contracts = (*mapping)->contracts;
    context.mapping_id = (*mapping)->mapping_id;
    return std::nullopt;
  }
  if (const auto* denied = std::get_if<dns::DeniedName>(&found)) {
    context.source = OpenContext::Source::kDeniedName;
    context.host = denied->name;
    return std::nullopt;
  }
  context.host = context.intent.address.unmapped().str();
  const auto failure = std::get<dns::LookupFailure>(found);
  if (failure != dns::LookupFailure::kNotSynthetic) {
    return invalid_destination(fmt::format("synthetic address {}: {}", context.host, describe(failure)), "transparent_tcp_mapping_denied",
                               "transparent_tcp_mapping");
  }
  if (classify_address(context.intent.address) == AddressClass::kAlwaysBlocked) {
    return invalid_destination(fmt::format("{} is an always-blocked address", context.host), kDestinationDetail,
                               "transparent_tcp_destination");
  }
  return std::nullopt;
}

/// Who calls, and that it is still the same file as at first.
std::optional<OpenRefusal> verify_identity(OpenContext& context) {
  if (context.core.options.endpoint_only_identity) return std::nullopt;
  const auto status = context.core.pins.verify(context.intent.identity);
  context.core.counters.pinned_binaries = context.core.pins.size();
  if (status.ok()) return std::nullopt;
  const bool full = absl::IsResourceExhausted(status);
  const bool local = context.source == OpenContext::Source::kPolicyLocal;
  return OpenRefusal{full ? DenialKind::kResourceExhausted : DenialKind::kIdentityUnavailable,
                     std::string{status.message()},
                     full    ? "transparent_tcp_resource_exhausted"
                     : local ? "transparent_tcp_policy_local_identity_unavailable"
                             : "transparent_tcp_identity_unavailable",
                     "",
                     "transparent_tcp_policy",
                     false};
}

/// One atomic policy decision. A denied name and a port that the mapping does not cover are denied whatever it says: nothing was resolved
/// for them.
std::optional<OpenRefusal> authorize(OpenContext& context) {
  if (is_own_service(context)) return std::nullopt;
  policy::Destination destination{context.host, context.intent.port.value, {}};
  static thread_local std::vector<std::string> ancestors;
  ancestors.clear();
  if (const auto* identity = context.identity(); identity != nullptr && !context.core.options.endpoint_only_identity) {
    for (const auto& ancestor : identity->ancestors) ancestors.push_back(ancestor.path);
    destination.binary = {identity->executable.path, ancestors, identity->cmdline_paths};
  }
  context.connection = context.generation->matcher->connect(destination);
  if (const auto& sink = context.core.options.decisions) {
    sink->decided(*context.generation, destination, nullptr, context.connection.allowed ? policy::Verdict::allow : policy::Verdict::deny);
  }
  if (!context.connection.allowed) {
    return policy_denied(context.connection.reason.empty() ? "network connections not allowed by policy" : context.connection.reason);
  }
  constexpr auto kMeanwhile = "name resolved before the policy allowed it";
  if (context.source == OpenContext::Source::kDeniedName) return policy_denied(kMeanwhile, false);
  const bool covered = std::any_of(context.contracts.begin(), context.contracts.end(),
                                   [&](const dns::Contract& contract) { return contract.port == context.intent.port; });
  if (context.source == OpenContext::Source::kMapping && !covered) return policy_denied(kMeanwhile, false);
  return std::nullopt;
}

std::vector<IpAddress> pinned_for(const OpenContext& context, const policy::Endpoint& endpoint) {
  for (const auto& contract : context.contracts) {
    if (contract.port == context.intent.port && contract.endpoint_index == endpoint.index && contract.policy == endpoint.policy)
      return contract.pinned;
  }
  return {};
}

bool has_contract(const OpenContext& context, const policy::Endpoint& endpoint) {
  return std::any_of(context.contracts.begin(), context.contracts.end(), [&](const dns::Contract& contract) {
    return contract.port == context.intent.port && contract.endpoint_index == endpoint.index && contract.policy == endpoint.policy;
  });
}

std::optional<OpenRefusal> address_refused(Rejection rejection) {
  if (!rejection.declarable) return invalid_destination(std::move(rejection.text), kDestinationDetail, "transparent_tcp_destination");
  return OpenRefusal{DenialKind::kPolicyDenied, std::move(rejection.text), kDestinationDetail, "ssrf", "ssrf", true};
}

std::optional<OpenRefusal> check_literal(OpenContext& context) {
  const auto address = context.intent.address.unmapped();
  std::optional<Rejection> first;
  for (const auto* endpoint : context.connection.endpoints()) {
    const auto plan = plan_destination(context.host, endpoint, false, context.generation->host_gateway_ip);
    if (!plan) continue;
    auto rejection = check_address(*plan, context.host, context.intent.port, address);
    if (!rejection) {
      context.addresses = {address};
      return std::nullopt;
    }
    if (!first) first = std::move(rejection);
  }
  if (!first) first = Rejection{fmt::format("{} is not declared", context.host), true};
  return address_refused(std::move(*first));
}

/// Only addresses that were judged when the name was asked, of the endpoint that decides.
std::optional<OpenRefusal> check_destination(OpenContext& context) {
  if (is_own_service(context)) return std::nullopt;
  if (context.source == OpenContext::Source::kLiteral) return check_literal(context);
  for (const auto* endpoint : context.connection.endpoints()) {
    if (!has_contract(context, *endpoint)) continue;
    context.addresses = pinned_for(context, *endpoint);
    if (!context.addresses.empty()) return std::nullopt;
    const bool alias = policy::is_host_alias(context.host);
    if (is_control_plane_port(context.intent.port)) {
      return address_refused(
          {fmt::format("port {} is a blocked control-plane port, connection rejected", context.intent.port.value), false});
    }
    return address_refused({fmt::format("{} has no address that this endpoint may reach", context.host), !alias});
  }
  return policy_denied("authorized endpoint did not match DNS correlation", false);
}

std::optional<OpenRefusal> check_gates(OpenContext& context) {
  return is_own_service(context) ? std::nullopt : check_inspectable(context.connection, context.core.leaves.available());
}

constexpr std::array<OpenStage, 6> kOpenStages = {{
    {"generation", &have_generation},
    {"destination", &find_destination},
    {"identity", &verify_identity},
    {"policy", &authorize},
    {"address", &check_destination},
    {"gates", &check_gates},
}};

}  // namespace

std::optional<OpenRefusal> check_inspectable(const policy::Connection& connection, bool certificates) {
  if (connection.inspection != policy::Inspection::raw && !certificates) {
    return OpenRefusal{DenialKind::kPolicyDenied,     "TLS termination unavailable (CA initialization failed)",
                       "tls_termination_unavailable", "connect-tls-termination-unavailable",
                       "tls_termination_unavailable", false};
  }
  if (connection.uninspected_credential() != nullptr) {
    return OpenRefusal{DenialKind::kPolicyDenied, "credentialed endpoint requires L7 inspection; raw tunnel is not explicitly allowed",
                       "uninspected_credentials", "connect-uninspected-credentials",
                       "uninspected_credentials", false};
  }
  return std::nullopt;
}

std::span<const OpenStage> open_stages() { return kOpenStages; }

std::optional<OpenRefusal> decide_open(OpenContext& context) {
  for (const auto& stage : kOpenStages) {
    if (auto refusal = stage.run(context)) return refusal;
  }
  return std::nullopt;
}

}  // namespace openshell::egress
