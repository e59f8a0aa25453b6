#include "egress/destination/address_rules.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "policy/matcher.hpp"

namespace openshell::egress {
namespace {

struct V4Block {
  std::uint32_t base;
  int prefix;
  AddressClass kind;
};

constexpr std::uint32_t quad(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) { return a << 24 | b << 16 | c << 8 | d; }

constexpr auto kBlocked = AddressClass::kAlwaysBlocked;
constexpr auto kInternal = AddressClass::kInternal;

// IANA special-purpose registry. First match counts, so 0.0.0.0 itself stands before its block.
constexpr std::array<V4Block, 16> kV4Blocks = {{
    {quad(127, 0, 0, 0), 8, kBlocked},
    {quad(169, 254, 0, 0), 16, kBlocked},
    {quad(0, 0, 0, 0), 32, kBlocked},
    {quad(0, 0, 0, 0), 8, kInternal},
    {quad(10, 0, 0, 0), 8, kInternal},
    {quad(172, 16, 0, 0), 12, kInternal},
    {quad(192, 168, 0, 0), 16, kInternal},
    {quad(100, 64, 0, 0), 10, kInternal},
    {quad(192, 0, 0, 0), 24, kInternal},
    {quad(192, 0, 2, 0), 24, kInternal},
    {quad(198, 51, 100, 0), 24, kInternal},
    {quad(203, 0, 113, 0), 24, kInternal},
    {quad(198, 18, 0, 0), 15, kInternal},
    {quad(255, 255, 255, 255), 32, kInternal},
    {quad(224, 0, 0, 0), 4, kInternal},
    {quad(240, 0, 0, 0), 4, kInternal},
}};

AddressClass classify_v4(std::uint32_t value) noexcept {
  for (const auto& block : kV4Blocks) {
    const std::uint32_t mask = ~std::uint32_t{0} << (32 - block.prefix);
    if ((value & mask) == (block.base & mask)) return block.kind;
  }
  return AddressClass::kPublic;
}

std::uint32_t v4_at(const IpAddress::Bytes& bytes, std::size_t at) { return quad(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]); }

bool all_zero(const IpAddress::Bytes& bytes, std::size_t from, std::size_t to) {
  return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.begin() + static_cast<std::ptrdiff_t>(to),
                     [](auto b) { return b == 0; });
}

AddressClass stricter(AddressClass a, AddressClass b) { return std::max(a, b); }

AddressClass classify_v6(const IpAddress::Bytes& bytes) noexcept {
  if (all_zero(bytes, 0, 15) && bytes[15] <= 1) return kBlocked;       // :: and ::1
  if (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80) return kBlocked;  // fe80::/10
  if (all_zero(bytes, 0, 10) && bytes[10] == 0xff && bytes[11] == 0xff) return classify_v4(v4_at(bytes, 12));
  if (all_zero(bytes, 0, 12)) return stricter(kInternal, classify_v4(v4_at(bytes, 12)));               // IPv4-compatible
  if (bytes[0] == 0x20 && bytes[1] == 0x02) return stricter(kInternal, classify_v4(v4_at(bytes, 2)));  // 6to4
  if (bytes[0] == 0x00 && bytes[1] == 0x64 && bytes[2] == 0xff && bytes[3] == 0x9b) {
    return all_zero(bytes, 4, 12) ? classify_v4(v4_at(bytes, 12)) : kInternal;  // NAT64; its local-use prefix is internal
  }
  if ((bytes[0] & 0xfe) == 0xfc) return kInternal;                                                     // ULA
  if (bytes[0] == 0xff) return kInternal;                                                              // multicast
  if (bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] == 0x0d && bytes[3] == 0xb8) return kInternal;  // documentation
  return AddressClass::kPublic;
}

std::optional<Rejection> check_gateway(const DestinationPlan& plan, std::string_view host, const IpAddress& address) {
  if (is_metadata_address(address)) {
    return Rejection{fmt::format("{} resolves to cloud metadata address {}, connection rejected", host, address.str()), false};
  }
  if (address != plan.gateway) {
    return Rejection{fmt::format("{} resolves to {} which does not match trusted host gateway {}, connection rejected", host, address.str(),
                                 plan.gateway.str()),
                     false};
  }
  return std::nullopt;
}

}  // namespace

AddressClass classify_address(const IpAddress& address) noexcept {
  return address.is_v4() ? classify_v4(address.v4_value()) : classify_v6(address.bytes());
}

bool is_metadata_address(const IpAddress& address) noexcept {
  const auto plain = address.unmapped();
  return plain.is_v4() && plain.v4_value() == quad(169, 254, 169, 254);
}

bool is_control_plane_port(Port port) noexcept {
  constexpr std::array<std::uint16_t, 5> kPorts = {2379, 2380, 6443, 10250, 10255};
  return std::find(kPorts.begin(), kPorts.end(), port.value) != kPorts.end();
}

IpAddress::Bytes mapped_bytes(const IpAddress& address) noexcept {
  if (!address.is_v4()) return address.bytes();
  IpAddress::Bytes out{};
  out[10] = out[11] = 0xff;
  std::copy_n(address.bytes().begin(), 4, out.begin() + 12);
  return out;
}

std::optional<DestinationPlan> plan_destination(std::string_view host, const policy::Endpoint* endpoint, bool declared,
                                                const std::optional<IpAddress>& host_gateway) {
  using Mode = DestinationPlan::Mode;
  DestinationPlan plan;
  plan.endpoint = endpoint;
  if (policy::is_host_alias(host)) {
    if (!host_gateway || is_metadata_address(*host_gateway)) return std::nullopt;
    plan.mode = Mode::kGatewayAlias;
    plan.gateway = *host_gateway;
  } else if (endpoint != nullptr && !endpoint->allowed_ips.empty()) {
    plan.mode = Mode::kAllowedIps;
  } else if (endpoint != nullptr && endpoint->literal && endpoint->host == host) {
    plan.mode = Mode::kLiteral;
  } else if (declared) {
    plan.mode = Mode::kDeclaredHost;
  }
  return plan;
}

std::optional<Rejection> check_address(const DestinationPlan& plan, std::string_view host, Port port, const IpAddress& address) {
  using Mode = DestinationPlan::Mode;
  const auto kind = classify_address(address);
  if (plan.mode == Mode::kPublicOnly) {
    if (kind == AddressClass::kPublic) return std::nullopt;
    return Rejection{fmt::format("{} resolves to internal address {}, connection rejected", host, address.str()),
                     kind == AddressClass::kInternal};
  }
  if (is_control_plane_port(port)) {
    return Rejection{fmt::format("port {} is a blocked control-plane port, connection rejected", port.value), false};
  }
  if (plan.mode == Mode::kGatewayAlias) return check_gateway(plan, host, address);
  if (kind == AddressClass::kAlwaysBlocked) {
    return Rejection{fmt::format("{} resolves to always-blocked address {}, connection rejected", host, address.str()), false};
  }
  if (plan.mode == Mode::kAllowedIps && !plan.endpoint->admits_address(mapped_bytes(address))) {
    return Rejection{fmt::format("{} resolves to {} which is not in allowed_ips, connection rejected", host, address.str()), true};
  }
  return std::nullopt;
}

std::vector<IpAddress> filter_addresses(const DestinationPlan& plan, std::string_view host, Port port, const std::vector<IpAddress>& all) {
  std::vector<IpAddress> out;
  for (const auto& address : all) {
    if (check_address(plan, host, port, address)) continue;
    if (std::find(out.begin(), out.end(), address) == out.end()) out.push_back(address);
  }
  return out;
}

}  // namespace openshell::egress
