#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace openshell::cli {

/// What bind(2) and connect(2) take.
struct SocketName {
  sockaddr_storage name{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  [[nodiscard]] std::uint16_t port() const;
};

/// A numeric address without brackets, `localhost` or `*` (any IPv4 address); nothing for any other name: none is looked up here.
std::optional<SocketName> socket_name(std::string host, std::uint16_t port);

}  // namespace openshell::cli
