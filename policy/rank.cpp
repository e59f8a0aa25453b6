#include "policy/rank.hpp"

#include <algorithm>

#include "sandbox.pb.h"

namespace openshell::policy {

HostClass host_class(std::string_view host) {
  if (host.empty()) return HostClass::none;
  if (host.find('*') == std::string_view::npos) return HostClass::exact;
  return host.find("**") == std::string_view::npos ? HostClass::pattern : HostClass::recursive_pattern;
}

Specificity specificity(const pb::NetworkEndpoint& endpoint) {
  Specificity out;
  out.is_explicit = !endpoint.advisor_proposed();
  out.host = host_class(endpoint.host());
  if (out.host == HostClass::pattern || out.host == HostClass::recursive_pattern) {
    const auto stars = std::count(endpoint.host().begin(), endpoint.host().end(), '*');
    out.host_characters = static_cast<std::uint32_t>(endpoint.host().size()) - static_cast<std::uint32_t>(stars);
    out.minus_stars = -static_cast<std::int32_t>(stars);
  }
  const auto& ports = endpoint.ports();
  out.single_port = !ports.empty() && std::all_of(ports.begin(), ports.end(), [&](auto port) { return port == ports.Get(0); });
  return out;
}

bool carries_metadata(const pb::NetworkEndpoint& endpoint) {
  return !endpoint.protocol().empty() || endpoint.allowed_ips_size() > 0 || endpoint.tls() != pb::NETWORK_TLS_MODE_UNSPECIFIED ||
         endpoint.has_credential_binding();
}

}  // namespace openshell::policy
