#include "cli/ssh/socket_name.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace openshell::cli {

std::uint16_t SocketName::port() const {
  return ntohs(name.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(name).sin_port
                                         : reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
}

std::optional<SocketName> socket_name(std::string host, std::uint16_t port) {
  if (host == "localhost") host = "127.0.0.1";
  if (host == "*") host = "0.0.0.0";
  SocketName out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.name);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.name);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.length = sizeof *v4;
    return out;
  }
  if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  out.length = sizeof *v6;
  return out;
}

}  // namespace openshell::cli
