#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "drivers/process/fence_evidence.hpp"

namespace openshell::drivers::process {
namespace {

struct Address {
  bool ipv6 = false;
  std::string text;
  sockaddr_storage bytes{};
};

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address->sa_family == AF_INET6) inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

// Loopback and one other address per family; link-local ones need a scope and are left out.
std::vector<Address> host_addresses() {
  std::vector<Address> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{list, freeifaddrs};
  bool have[2][2] = {};
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr)) continue;
    bool& taken = have[family == AF_INET6][(at->ifa_flags & IFF_LOOPBACK) != 0];
    if (taken) continue;
    taken = true;
    Address address{family == AF_INET6, text_of(at->ifa_addr)};
    memcpy(&address.bytes, at->ifa_addr, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    found.push_back(address);
  }
  return found;
}

// Bound to an ephemeral port, which is returned in `port`.
Descriptor bound(const Address& address, int type, std::uint16_t& port) {
  Descriptor made{socket(address.ipv6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_storage to = address.bytes;
  if (address.ipv6) reinterpret_cast<sockaddr_in6*>(&to)->sin6_port = 0;
  if (!address.ipv6) reinterpret_cast<sockaddr_in*>(&to)->sin_port = 0;
  socklen_t size = address.ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (!made || bind(made.get(), reinterpret_cast<sockaddr*>(&to), size) != 0) return {};
  if (type == SOCK_STREAM && listen(made.get(), 4) != 0) return {};
  getsockname(made.get(), reinterpret_cast<sockaddr*>(&to), &size);
  port = ntohs(address.ipv6 ? reinterpret_cast<sockaddr_in6*>(&to)->sin6_port : reinterpret_cast<sockaddr_in*>(&to)->sin_port);
  return made;
}

}  // namespace

absl::StatusOr<OutsideListeners> OutsideListeners::open() {
  OutsideListeners all;
  for (const Address& address : host_addresses()) {
    OutsideListener listener{address.ipv6, address.text};
    Descriptor tcp = bound(address, SOCK_STREAM, listener.tcp_port), udp = bound(address, SOCK_DGRAM, listener.udp_port);
    if (!tcp || !udp) return absl::FailedPreconditionError("no outside listener can be opened on " + address.text);
    all.names_.push_back("tcp " + address.text);
    all.names_.push_back("udp " + address.text);
    all.sockets_.push_back(std::move(tcp));
    all.sockets_.push_back(std::move(udp));
    all.listeners_.push_back(std::move(listener));
  }
  if (all.listeners_.empty()) return absl::FailedPreconditionError("the host has no address for the fence probe to be kept away from");
  return all;
}

std::vector<std::string> OutsideListeners::heard(bool wait_first) const {
  std::vector<pollfd> wait;
  for (const Descriptor& socket : sockets_) wait.push_back({socket.get(), POLLIN, 0});
  std::vector<std::string> names;
  if (poll(wait.data(), wait.size(), wait_first ? kSilenceMs : 0) == 0) return names;
  for (std::size_t i = 0; i < wait.size(); ++i) {
    if (wait[i].revents != 0) names.push_back(names_[i]);
  }
  return names;
}

}  // namespace openshell::drivers::process
