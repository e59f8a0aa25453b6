// Which real addresses a connection may reach: the defence against a permitted name that leads somewhere private (NET rows, SSRF).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/ip_address.hpp"
#include "messages/values.hpp"

namespace openshell::policy {
struct Endpoint;
}

namespace openshell::egress {

enum class AddressClass : std::uint8_t {
  kPublic,
  kInternal,       ///< private and special ranges: open only where the policy says so
  kAlwaysBlocked,  ///< loopback, link-local (with the metadata service), unspecified: no policy opens them
};

/// An IPv6 address that carries an IPv4 one (mapped, compatible, 6to4, NAT64) gets the stricter of both classes.
AddressClass classify_address(const IpAddress& address) noexcept;
bool is_metadata_address(const IpAddress& address) noexcept;
/// etcd and Kubernetes control-plane ports: refused wherever private addresses are open.
bool is_control_plane_port(Port port) noexcept;

/// How the addresses of one endpoint and port are judged; first that applies wins.
struct DestinationPlan {
  enum class Mode : std::uint8_t {
    kGatewayAlias,  ///< one of the host's names: its one trusted address, nothing else
    kAllowedIps,    ///< every address lies in the endpoint's allowed_ips
    kLiteral,       ///< the endpoint names this very address
    kDeclaredHost,  ///< a rule names this very host: private addresses too
    kPublicOnly,
  };
  Mode mode = Mode::kPublicOnly;
  const policy::Endpoint* endpoint = nullptr;
  IpAddress gateway;  ///< kGatewayAlias
};

/// `host`: lower-case name or literal. `declared`: a matching rule, not proposed by an advisor, names the host exactly.
/// nullopt: an alias without a trusted address.
std::optional<DestinationPlan> plan_destination(std::string_view host, const policy::Endpoint* endpoint, bool declared,
                                                const std::optional<IpAddress>& host_gateway);

struct Rejection {
  std::string text;
  bool declarable = false;  ///< true: a declaration in the policy would open it; false: nothing would
};
/// nullopt: the address may be dialed.
std::optional<Rejection> check_address(const DestinationPlan& plan, std::string_view host, Port port, const IpAddress& address);

/// The good ones in order, without duplicates.
std::vector<IpAddress> filter_addresses(const DestinationPlan& plan, std::string_view host, Port port, const std::vector<IpAddress>& all);

/// The 16-byte form in which the policy keeps addresses: IPv4 as IPv4-mapped.
IpAddress::Bytes mapped_bytes(const IpAddress& address) noexcept;

}  // namespace openshell::egress
