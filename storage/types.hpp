// More names of row types that have several users; those of older ones stand in store.hpp.
#pragma once

#include <string_view>

namespace openshell::storage::types {

inline constexpr std::string_view kProviderRefresh = "provider_credential_refresh_state";
inline constexpr std::string_view kSandboxTemplate = "sandbox_workload_template";
inline constexpr std::string_view kServiceEndpoint =
    "service_endpoint";  ///< name `<sandbox>` or `<sandbox>--<service>`, scope the sandbox's id
inline constexpr std::string_view kSshSession = "ssh_session";

}  // namespace openshell::storage::types
