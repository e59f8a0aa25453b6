// The parts of validate(). Internal.
#pragma once

#include <string>

#include "policy/diagnostic.hpp"
#include "policy/matcher.hpp"
#include "policy/proto_fwd.hpp"

namespace openshell::policy {

/// Where a check stands: how texts and paths name the endpoint.
struct EndpointPlace {
  std::string rule_key;
  std::string rule_name;  ///< Display name, else the key.
  int index = 0;

  [[nodiscard]] std::string path() const;  ///< `network_policies.<key>.endpoints[<i>]`
  [[nodiscard]] std::string loc() const;   ///< `<key>.endpoints[<i>]`
};

void check_host_and_ports(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Diagnostics& out);
void check_signing(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Diagnostics& out);
void check_l7(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Diagnostics& out);
/// Rules of one endpoint whose protocol is known.
void check_rules(const EndpointPlace& place, const pb::NetworkEndpoint& endpoint, Protocol protocol, Diagnostics& out);
void check_middlewares(const pb::SandboxPolicy& policy, Diagnostics& out);

}  // namespace openshell::policy
