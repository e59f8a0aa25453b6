#pragma once

#include <string_view>

namespace openshell::gateway::row_types {

/// One SSH session (proto/ssh_session.proto): id the SHA-256 of its token, scope the sandbox's id, so that it is deleted with it.
inline constexpr std::string_view kSshSession = "ssh_session";

}  // namespace openshell::gateway::row_types
