// A service of a sandbox that people reach by a host name: its stored form, its checks and its address. Shared by the handlers of service
// RPCs and by whoever creates a sandbox together with its services. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "openshell.pb.h"
#include "storage/store.hpp"

namespace openshell::api {

constexpr int kMaxServiceExposures = 64;  ///< in one CreateSandbox

/// How URLs of services are made.
struct ServiceAddress {
  std::string scheme = "https";
  std::string base_domain = "openshell.localhost";  ///< empty: services have no URL
  std::uint16_t port = 0;

  /// `https://default--box--web.openshell.localhost:17670/`; the port is left out where it is the scheme's own.
  [[nodiscard]] std::string url(std::string_view workspace, std::string_view sandbox, std::string_view service) const;
};

/// INVALID_ARGUMENT: name (may be empty), port 1..65535, a known mode.
absl::Status check_service(std::string_view service, std::uint32_t target_port, openshell::v1::ServiceAuthorizationMode mode);
/// The same for all services of a new sandbox, and no name twice.
absl::Status check_exposures(const openshell::v1::CreateSandboxRequest& request);

/// What a row of it holds; ids and versions come from the row.
openshell::v1::ServiceEndpoint new_service(const std::string& workspace, const std::string& sandbox_id, const std::string& sandbox,
                                           const std::string& service, std::uint32_t target_port,
                                           openshell::v1::ServiceAuthorizationMode mode);
storage::Object to_row(const openshell::v1::ServiceEndpoint& endpoint);
absl::StatusOr<openshell::v1::ServiceEndpoint> service_from_row(const storage::Object& row);
/// `box` or `box--web`.
std::string service_row_name(std::string_view sandbox, std::string_view service);

/// The services that a request for a sandbox asks for.
std::vector<openshell::v1::ServiceEndpoint> exposures_of(const openshell::v1::CreateSandboxRequest& request, const std::string& workspace,
                                                         const std::string& sandbox_id, const std::string& sandbox);

}  // namespace openshell::api
