// The endpoints whose last exchange is shown as a status of the sandbox. Gateway and supervisor use this one derivation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::sandbox::v1 {
class SandboxPolicy;
}  // namespace openshell::sandbox::v1

namespace openshell::policy {

/// One endpoint of a rule, as its status names it. Endpoints of several rules may share an id: they are one record.
struct InventoryEndpoint {
  std::string policy;                ///< rule key
  std::uint32_t index = 0;           ///< its place inside the rule
  std::string id;                    ///< endpoint_id() of the rest
  std::string host;                  ///< lower case
  std::vector<std::uint32_t> ports;  ///< sorted, each once, at least one
  std::string path;                  ///< "/**": unrestricted
  bool provider_credentialed = false;
};

/// `endpoint:v1:` and 64 hex digits: SHA-256 over a domain text, host and path with their lengths, and the ports with their number.
[[nodiscard]] std::string endpoint_id(std::string_view host, std::string_view path, const std::vector<std::uint32_t>& ports);

/// The endpoints that have a status: protocol mcp, with a host and a port. In the order of rule keys and places.
[[nodiscard]] std::vector<InventoryEndpoint> endpoint_inventory(const sandbox::v1::SandboxPolicy& policy);

}  // namespace openshell::policy
