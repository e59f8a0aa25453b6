#include "policy/blocked_destination.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "policy/matcher.hpp"
#include "policy/text.hpp"
#include "sandbox.pb.h"

namespace openshell::policy {
namespace {

using text::cat;
using Blocks = std::vector<AddressBlock>;

constexpr std::uint32_t kFirstEphemeralPort = 49'152;
constexpr std::array<std::uint32_t, 7> kDatabasePorts{5432, 3306, 6379, 27017, 9200, 11211, 5672};

Blocks blocks(std::initializer_list<std::string_view> texts) {
  Blocks out;
  for (const auto text : texts) out.push_back(*parse_address_block(text));
  return out;
}

const Blocks& blocked() {
  static const Blocks kBlocks = blocks({"127.0.0.0/8", "169.254.0.0/16", "0.0.0.0", "::1", "::", "fe80::/10"});
  return kBlocks;
}
const Blocks& internal() {
  static const Blocks kBlocks = blocks({"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24",
                                        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "255.255.255.255", "fc00::/7"});
  return kBlocks;
}

bool meets(const AddressBlock& a, const AddressBlock& b) { return a.contains(b.network) || b.contains(a.network); }
bool meets_any(const AddressBlock& block, const Blocks& list) {
  return std::any_of(list.begin(), list.end(), [&](const AddressBlock& other) { return meets(block, other); });
}

// A host that is an address, brackets or not.
absl::StatusOr<AddressBlock> literal(std::string_view host) {
  host = text::trim(host);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.find('/') != std::string_view::npos) return absl::InvalidArgumentError("a block is no address");
  return parse_address_block(host);
}

std::string plain_name(std::string_view host) {
  auto name = text::lower(text::trim(host));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

bool is_metadata_name(std::string_view host) {
  const auto name = plain_name(host);
  return name == "metadata.google.internal" || name == "metadata";
}

std::set<std::uint32_t> endpoint_ports(const pb::NetworkEndpoint& endpoint) {
  std::set<std::uint32_t> ports{endpoint.ports().begin(), endpoint.ports().end()};
  if (ports.empty() && endpoint.port() != 0) ports.insert(endpoint.port());
  return ports;
}

void note_endpoint(const pb::NetworkEndpoint& endpoint, std::vector<std::string>& notes) {
  const std::string& host = endpoint.host();
  if (endpoint.allow_uninspected_credentials()) {
    notes.push_back(cat("Endpoint '", host, "' explicitly allows credentials on traffic OpenShell cannot inspect or rewrite."));
  }
  if (const auto address = literal(host); address.ok() && !meets_any(*address, blocked()) && meets_any(*address, internal())) {
    notes.push_back(cat("Destination '", host, "' appears to be an internal/private address."));
  }
  if (host.find('*') != std::string::npos) {
    notes.push_back(cat("Host '", host, "' contains a wildcard - this may match unintended destinations."));
  }
  for (const auto& entry : endpoint.allowed_ips()) {
    const auto block = parse_address_block(entry);
    if (block.ok() && !meets_any(*block, blocked()) && meets_any(*block, internal())) {
      notes.push_back(cat("allowed_ips includes private/internal range '", entry, "'."));
    }
  }
  if (text::trim(host).empty() && endpoint.allowed_ips_size() > 0) {
    notes.push_back("allowed_ips allowlist is hostless and may match any hostname resolving within the configured range.");
  }
  for (const auto port : endpoint_ports(endpoint)) {
    if (port > kFirstEphemeralPort) {
      notes.push_back(cat("Port ", port, " is in the ephemeral range - this may be a temporary service."));
    }
    if (std::find(kDatabasePorts.begin(), kDatabasePorts.end(), port) != kDatabasePorts.end()) {
      notes.push_back(cat("Port ", port, " is a well-known database/service port."));
    }
  }
}

}  // namespace

bool is_always_blocked(std::string_view host) {
  if (plain_name(host) == "localhost" || is_metadata_name(host)) return true;
  const auto address = literal(host);
  return address.ok() && meets_any(*address, blocked());
}

bool is_always_blocked_block(std::string_view text) {
  const auto block = parse_address_block(text);
  return block.ok() && meets_any(*block, blocked());
}

std::string blocked_destination(const pb::NetworkPolicyRule& rule) {
  for (const auto& endpoint : rule.endpoints()) {
    const std::string& host = endpoint.host();
    if (plain_name(host) == "localhost") {
      return "proposed rule endpoint host 'localhost' is always blocked; the proxy will deny traffic to loopback regardless of policy";
    }
    if (is_metadata_name(host)) {
      return cat("proposed rule endpoint host '", host,
                 "' is a known cloud metadata hostname; the proxy will deny traffic to this destination regardless of policy");
    }
    if (is_always_blocked(host)) {
      return cat("proposed rule endpoint host '", host,
                 "' is an always-blocked address (loopback/link-local/unspecified); the proxy will deny traffic to this destination "
                 "regardless of policy");
    }
    for (const auto& entry : endpoint.allowed_ips()) {
      if (is_always_blocked_block(entry)) {
        return cat("proposed rule contains always-blocked `allowed_ips` entry '", entry,
                   "'; SSRF hardening prevents traffic to these destinations regardless of policy");
      }
    }
  }
  return {};
}

std::string security_notes(const pb::NetworkPolicyRule& rule) {
  std::vector<std::string> notes;
  for (const auto& endpoint : rule.endpoints()) note_endpoint(endpoint, notes);
  return text::join(notes, " ");
}

}  // namespace openshell::policy
