// What the command line says to a supervisor that is a proxy by itself.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "egress/ip_address.hpp"
#include "messages/values.hpp"
#include "programs/supervisor/options.hpp"

namespace openshell::supervisor {

struct NetworkProxyOptions {
  egress::IpAddress address = egress::IpAddress::v4(0x7f000001);  ///< loopback only (NP-06)
  Port port{3128};                                                ///< 0: any free one
  std::string tls_dir;                                            ///< empty: a directory of this process under the temporary one
  std::string policy_data;                                        ///< path
  std::string additional_ca_bundle;                               ///< path; empty: none
  std::string log_level = "info";
  std::vector<std::string> resolvers;
};

/// Whether these arguments ask for that role.
[[nodiscard]] bool is_network_proxy(const std::vector<std::string>& arguments);

/// INVALID_ARGUMENT with the flag and the reason. A flag beats its environment variable.
absl::StatusOr<NetworkProxyOptions> parse_network_proxy_options(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace openshell::supervisor
