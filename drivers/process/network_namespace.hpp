// The network of a sandbox: `lo` and nothing else. Two documentation addresses besides loopback let getaddrinfo(AI_ADDRCONFIG) work, and a
// local default route per family (AnyIP) lets the broker answer for any address. That route is for TCP: UDP has a way to loopback only, and
// ENETUNREACH for every other destination. [RT-34] rtnetlink(7); no program of the host is run.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "drivers/process/launch_plan.hpp"

namespace openshell::drivers::process {

inline constexpr std::string_view kExtraIpv4 = "192.0.2.1";    ///< RFC 5737
inline constexpr std::string_view kExtraIpv6 = "2001:db8::1";  ///< RFC 3849

/// Sets up `lo`, the addresses and the routes in the caller's network namespace. IPv6 lines are left out where the kernel has no IPv6.
absl::Status configure_loopback();

/// Whether this kernel has IPv6 at all.
bool kernel_has_ipv6();

/// Links, addresses, routes of all tables and rules of the caller's network namespace. Probes stay empty.
absl::StatusOr<NetworkFacts> read_network();

/// Sends one datagram and waits up to 100 ms for its answer: ECONNREFUSED where nobody listens (ICMP), 0 where none came.
int probe_datagram(bool ipv6, const std::string& address, std::uint16_t port);

/// Tries, from the caller's namespace and without any filter, to reach the outside: fixed test addresses and the given listeners, each by
/// TCP connect and, for listeners, one UDP datagram. A connect that has not ended after a second counts as EINPROGRESS.
std::vector<ProbeResult> probe_outside(const std::vector<OutsideListener>& listeners);

}  // namespace openshell::drivers::process
