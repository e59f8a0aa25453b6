// What a workload asks for when it connects, and what it is told.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "egress/ip_address.hpp"
#include "messages/values.hpp"

namespace openshell::egress {

/// One program file of the calling chain, as the kernel named it and as the sandbox runtime hashed it.
struct BinaryEvidence {
  std::string path;    ///< absolute
  std::string sha256;  ///< 64 lower-case hex digits; empty: the runtime could not read it, which makes the identity unusable
};

/// The caller of connect(2) at the moment of the decision.
struct ResolvedIdentity {
  BinaryEvidence executable;
  std::vector<BinaryEvidence> ancestors;   ///< parent first
  std::vector<std::string> cmdline_paths;  ///< for people only; authorises nothing
};

/// The runtime could not find out who calls.
struct FailedIdentity {
  std::string message;
};

using SuppliedIdentity = std::variant<ResolvedIdentity, FailedIdentity>;

/// One mediated open, as `network_connected` of the boundary channel carries it.
struct OpenIntent {
  IpAddress address;  ///< synthetic (from policy DNS) or literal
  Port port;
  SuppliedIdentity identity;
  std::uint64_t socket_cookie = 0;
  bool nonblocking = false;
  std::int64_t pid = 0;  ///< for events; 0: not known
};

enum class DenialKind : std::uint8_t {
  kPolicyDenied,          ///< a person could allow it; makes a DenialEvent
  kIdentityUnavailable,   ///< who calls is not known or not what it was
  kInvalidDestination,    ///< nobody could allow it: metadata, stale synthetic address, reserved name
  kResourceExhausted,     ///< a bound was hit
  kMediationUnavailable,  ///< no generation yet, or shutting down
};

/// The name of the boundary channel's `Denied` value: "PolicyDenied" and so on.
[[nodiscard]] std::string_view wire_name(DenialKind kind) noexcept;

struct RelayReady {};
struct OpenDenied {
  DenialKind kind = DenialKind::kPolicyDenied;
  DenialId denial_id;  ///< the one of the event that was made
};

/// RelayReady: connect(2) succeeds, bytes may flow. OpenDenied: it fails and the stream is the caller's to end.
using OpenDecision = std::variant<RelayReady, OpenDenied>;

}  // namespace openshell::egress
