#pragma once

#include <libssh/libssh.h>

#include <cstdint>
#include <optional>

namespace openshell::supervisor {

/// Least packet that a client must take. RFC 4254 expects 32,768; a client that names 10 makes libssh 0.10 write empty packets for ever.
inline constexpr std::uint32_t kLeastPacket = 1'024;

/// The packet size that the client named for a channel that was accepted just now. libssh has no function for it, so it is read where 0.10
/// keeps it, between fields whose values are known at that moment; nullopt where they are not there, as in another version.
std::optional<std::uint32_t> client_packet_size(ssh_channel channel);

}  // namespace openshell::supervisor
