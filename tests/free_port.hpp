// A TCP port for a program that cannot choose one by itself.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>

namespace openshell::test {

/// Free on 127.0.0.1 now, and below what the kernel hands out by itself (ip_local_port_range), so that no connection of anybody takes it
/// before it is used. 0: none was found.
inline std::uint16_t free_port() {
  static std::mt19937 random{std::random_device{}()};
  for (int tries = 0; tries < 1'000; ++tries) {
    const auto port = static_cast<std::uint16_t>(std::uniform_int_distribution<int>{20'000, 31'999}(random));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (free) return port;
  }
  return 0;
}

}  // namespace openshell::test
