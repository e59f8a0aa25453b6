// Everything a decision depends on, frozen: published as one, read without locks, replaced as one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "egress/ip_address.hpp"
#include "messages/values.hpp"

namespace openshell::policy {
class Matcher;
}

namespace openshell::egress {

class CredentialTable;

/// Sandbox setting `network.denied_http`.
enum class DeniedHttp : std::uint8_t {
  kRefuse,   ///< a denied open fails
  kExplain,  ///< a denied open that speaks HTTP or TLS is accepted and answered with the structured 403; nothing is dialed
};

/// One policy generation: immutable once published. Source: NET and CA rows, FB-06.
struct Generation {
  std::uint64_t number = 0;  ///< rises by at least one with each publication; the engine refuses an older one
  Revision revision;         ///< policy revision of the gateway
  PolicyHash hash;
  std::shared_ptr<const policy::Matcher> matcher;  ///< null: quarantine, everything is denied with `quarantine_reason`
  std::string quarantine_reason;
  std::shared_ptr<const CredentialTable> credentials;  ///< null: none; every placeholder in a request head is refused
  DeniedHttp denied_http = DeniedHttp::kRefuse;
  bool gateway_global_policy = false;        ///< an administrator's policy for all sandboxes: generic credentials resolve nowhere under it
  bool agent_proposals = false;              ///< structured denials carry `next_steps` and `agent_guidance`
  std::optional<IpAddress> host_gateway_ip;  ///< where `host.openshell.internal` and its synonyms lead; 127.0.0.1 with the process driver
};

}  // namespace openshell::egress
