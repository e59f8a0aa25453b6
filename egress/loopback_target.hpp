#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace openshell::egress {

/// Where inside a sandbox a connection from outside may go: its own loopback and nothing else. `localhost` (any case), 127/8, `::1` in any
/// form, with or without brackets, and `::ffff:127.x`; no name is ever resolved. The literal to connect to, or InvalidArgument with the
/// text for the caller. Asked by the gateway before a relay is opened and by the supervisor again.
absl::StatusOr<std::string> loopback_target(std::string_view host, std::uint32_t port);

}  // namespace openshell::egress
