#include "drivers/process/network_namespace.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>

#include "drivers/process/descriptor.hpp"

namespace openshell::drivers::process {
namespace {

constexpr int kLoopbackIndex = 1;
constexpr std::size_t kReceiveBytes = 64 * 1024;
constexpr int kConnectWaitMs = 1000;
constexpr int kDatagramWaitMs = 100;

// One rtnetlink request: header, fixed part, attributes.
class Request {
 public:
  template <class Body>
  Request(std::uint16_t type, std::uint16_t flags, const Body& body) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    bytes_.append(reinterpret_cast<const char*>(&header), sizeof header);
    bytes_.append(reinterpret_cast<const char*>(&body), sizeof body);
    pad();
  }
  void attribute(std::uint16_t type, std::string_view value) {
    rtattr head{};
    head.rta_type = type;
    head.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(value.size()));
    bytes_.append(reinterpret_cast<const char*>(&head), sizeof head);
    bytes_.append(value);
    pad();
  }
  template <class T>
  void number(std::uint16_t type, T value) {
    attribute(type, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  std::string& finish() {
    const std::uint32_t size = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &size, sizeof size);
    return bytes_;
  }

 private:
  void pad() { bytes_.resize(NLMSG_ALIGN(bytes_.size()), '\0'); }
  std::string bytes_;
};

class Netlink {
 public:
  Netlink() : socket_{socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)} {}

  // Sends and waits for the acknowledgement: 0, or the kernel's errno.
  absl::StatusOr<int> acknowledgement(Request request, const std::string& what) {
    const std::string& bytes = request.finish();
    if (send(socket_.get(), bytes.data(), bytes.size(), 0) < 0) return system_error(what);
    int error = 0;
    if (auto status = receive([&error](const nlmsghdr& message) {
          if (message.nlmsg_type == NLMSG_ERROR) error = -static_cast<const nlmsgerr*>(NLMSG_DATA(&message))->error;
          return message.nlmsg_type != NLMSG_ERROR;
        });
        !status.ok()) {
      return status;
    }
    return error;
  }

  absl::Status change(Request request, const std::string& what) {
    const auto error = acknowledgement(std::move(request), what);
    if (!error.ok()) return error.status();
    return *error == 0 ? absl::OkStatus() : system_error(what, *error);
  }

  // Asks for all objects of a kind.
  absl::Status dump(Request request, const std::function<void(const nlmsghdr&)>& each) {
    const std::string& bytes = request.finish();
    if (send(socket_.get(), bytes.data(), bytes.size(), 0) < 0) return system_error("asking rtnetlink");
    int error = 0;
    if (auto status = receive([&](const nlmsghdr& message) {
          if (message.nlmsg_type == NLMSG_DONE) return false;
          if (message.nlmsg_type == NLMSG_ERROR) {
            error = -static_cast<const nlmsgerr*>(NLMSG_DATA(&message))->error;
            return false;
          }
          each(message);
          return true;
        });
        !status.ok()) {
      return status;
    }
    return error == 0 || error == EOPNOTSUPP || error == EAFNOSUPPORT ? absl::OkStatus() : system_error("rtnetlink dump", error);
  }

 private:
  absl::Status receive(const std::function<bool(const nlmsghdr&)>& more) {
    const auto buffer = std::make_unique<std::array<char, kReceiveBytes>>();
    for (;;) {
      const ssize_t got = recv(socket_.get(), buffer->data(), buffer->size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return system_error("reading from rtnetlink");
      int left = static_cast<int>(got);
      for (const nlmsghdr* message = reinterpret_cast<nlmsghdr*>(buffer->data()); NLMSG_OK(message, static_cast<unsigned>(left));
           message = NLMSG_NEXT(message, left)) {
        if (!more(*message)) return absl::OkStatus();
      }
    }
  }
  Descriptor socket_;
};

std::string address_bytes(int family, std::string_view text) {
  std::string bytes(family == AF_INET ? 4 : 16, '\0');
  inet_pton(family, std::string(text).c_str(), bytes.data());
  return bytes;
}

std::string address_text(int family, const void* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, bytes, text, sizeof text);
  return text;
}

absl::Status add_address(Netlink& netlink, int family, std::string_view address) {
  ifaddrmsg body{};
  body.ifa_family = static_cast<std::uint8_t>(family);
  body.ifa_prefixlen = family == AF_INET ? 32 : 128;
  body.ifa_index = kLoopbackIndex;
  body.ifa_scope = RT_SCOPE_UNIVERSE;
  Request request{RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, body};
  const std::string bytes = address_bytes(family, address);
  request.attribute(IFA_LOCAL, bytes);
  request.attribute(IFA_ADDRESS, bytes);
  request.number<std::uint32_t>(IFA_FLAGS, IFA_F_NOPREFIXROUTE | (family == AF_INET6 ? IFA_F_NODAD : 0));
  return netlink.change(std::move(request), "adding " + std::string(address) + " to lo");
}

absl::Status add_local_default(Netlink& netlink, int family, std::string_view source) {
  rtmsg body{};
  body.rtm_family = static_cast<std::uint8_t>(family);
  body.rtm_table = RT_TABLE_LOCAL;
  body.rtm_protocol = RTPROT_BOOT;
  body.rtm_scope = RT_SCOPE_HOST;
  body.rtm_type = RTN_LOCAL;
  Request request{RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, body};
  request.number<std::uint32_t>(RTA_OIF, kLoopbackIndex);
  request.attribute(RTA_PREFSRC, address_bytes(family, source));
  return netlink.change(std::move(request), "adding the local default route");
}

// One line of the routing policy: `ipproto udp` or everything, to `destination` or everywhere, and what is done with it.
struct Rule {
  std::uint32_t priority;
  std::uint8_t protocol = 0;  // 0: every protocol
  std::string_view destination;
  std::uint8_t prefix = 0;
  std::uint8_t action = FR_ACT_TO_TBL;
};

absl::StatusOr<int> change_rule(Netlink& netlink, std::uint16_t type, int family, const Rule& rule) {
  fib_rule_hdr body{};
  body.family = static_cast<std::uint8_t>(family);
  body.action = rule.action;
  body.table = rule.action == FR_ACT_TO_TBL ? RT_TABLE_LOCAL : RT_TABLE_UNSPEC;
  body.dst_len = rule.prefix;
  const std::uint16_t flags = type == RTM_NEWRULE ? NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK : NLM_F_ACK;
  Request request{type, flags, body};
  request.number<std::uint32_t>(FRA_PRIORITY, rule.priority);
  if (rule.protocol != 0) request.number<std::uint8_t>(FRA_IP_PROTO, rule.protocol);
  if (rule.prefix != 0) request.attribute(FRA_DST, address_bytes(family, rule.destination));
  return netlink.acknowledgement(std::move(request), "changing the routing policy");
}

// The local default route is there for TCP, whose streams the broker answers. A datagram to the outside would vanish in it without an
// error: for UDP only loopback has a way, everything else is ENETUNREACH at once. The kernel's first rule has to stand behind these two.
absl::Status confine_datagrams(Netlink& netlink, int family) {
  constexpr std::uint32_t kLoopbackUdp = 1, kOtherUdp = 2, kLocal = 10;
  const bool ipv4 = family == AF_INET;
  const Rule loopback{.priority = kLoopbackUdp,
                      .protocol = IPPROTO_UDP,
                      .destination = ipv4 ? "127.0.0.0" : "::1",
                      .prefix = static_cast<std::uint8_t>(ipv4 ? 8 : 128)};
  const Rule elsewhere{.priority = kOtherUdp, .protocol = IPPROTO_UDP, .action = FR_ACT_UNREACHABLE};
  const std::pair<std::uint16_t, Rule> steps[] = {
      {RTM_NEWRULE, {.priority = kLocal}}, {RTM_DELRULE, {.priority = 0}}, {RTM_NEWRULE, loopback}, {RTM_NEWRULE, elsewhere}};
  for (const auto& [type, rule] : steps) {
    const auto error = change_rule(netlink, type, family, rule);
    if (!error.ok()) return error.status();
    if (*error == EOPNOTSUPP || *error == EAFNOSUPPORT) return absl::OkStatus();  // a kernel without routing policy: datagrams stay silent
    if (*error != 0) return system_error("changing the routing policy", *error);
  }
  return absl::OkStatus();
}

template <class Body>
void each_attribute(const nlmsghdr& message, const std::function<void(const rtattr&)>& visit) {
  const auto* body = static_cast<const Body*>(NLMSG_DATA(&message));
  const auto* at = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(body) + NLMSG_ALIGN(sizeof(Body)));
  int left = static_cast<int>(message.nlmsg_len - NLMSG_LENGTH(sizeof(Body)));
  for (; RTA_OK(at, left); at = RTA_NEXT(at, left)) visit(*at);
}

template <class T>
T attribute_number(const rtattr& attribute) {
  T value{};
  std::memcpy(&value, RTA_DATA(&attribute), std::min<std::size_t>(sizeof value, RTA_PAYLOAD(&attribute)));
  return value;
}

LinkFact link_fact(const nlmsghdr& message) {
  const auto* body = static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
  LinkFact fact{body->ifi_index, {}, body->ifi_type, (body->ifi_flags & IFF_UP) != 0};
  each_attribute<ifinfomsg>(message, [&fact](const rtattr& a) {
    if (a.rta_type == IFLA_IFNAME) fact.name = static_cast<const char*>(RTA_DATA(&a));
  });
  return fact;
}

AddressFact address_fact(const nlmsghdr& message) {
  const auto* body = static_cast<const ifaddrmsg*>(NLMSG_DATA(&message));
  AddressFact fact{static_cast<std::int32_t>(body->ifa_index), {}, body->ifa_prefixlen};
  each_attribute<ifaddrmsg>(message, [&](const rtattr& a) {
    if (a.rta_type == IFA_LOCAL || (a.rta_type == IFA_ADDRESS && fact.address.empty()))
      fact.address = address_text(body->ifa_family, RTA_DATA(&a));
  });
  return fact;
}

RouteFact route_fact(const nlmsghdr& message) {
  const auto* body = static_cast<const rtmsg*>(NLMSG_DATA(&message));
  RouteFact fact{body->rtm_family == AF_INET6, {}, body->rtm_dst_len, body->rtm_table, body->rtm_type, body->rtm_protocol, 0, false};
  each_attribute<rtmsg>(message, [&](const rtattr& a) {
    if (a.rta_type == RTA_DST) fact.destination = address_text(body->rtm_family, RTA_DATA(&a));
    if (a.rta_type == RTA_TABLE) fact.table = attribute_number<std::uint32_t>(a);
    if (a.rta_type == RTA_OIF) fact.out_index = attribute_number<std::int32_t>(a);
    if (a.rta_type == RTA_GATEWAY || a.rta_type == RTA_VIA || a.rta_type == RTA_MULTIPATH || a.rta_type == RTA_ENCAP) fact.gateway = true;
  });
  return fact;
}

RuleFact rule_fact(const nlmsghdr& message) {
  const auto* body = static_cast<const fib_rule_hdr*>(NLMSG_DATA(&message));
  RuleFact fact{body->family == AF_INET6, 0, body->table, body->action, body->src_len != 0 || body->dst_len != 0};
  each_attribute<fib_rule_hdr>(message, [&fact](const rtattr& a) {
    if (a.rta_type == FRA_PRIORITY) fact.priority = attribute_number<std::uint32_t>(a);
    if (a.rta_type == FRA_TABLE) fact.table = attribute_number<std::uint32_t>(a);
    if (a.rta_type == FRA_IIFNAME || a.rta_type == FRA_OIFNAME || a.rta_type == FRA_FWMARK || a.rta_type == FRA_IP_PROTO)
      fact.selective = true;
  });
  return fact;
}

sockaddr_storage socket_address(bool ipv6, const std::string& address, std::uint16_t port, socklen_t& size) {
  sockaddr_storage storage{};
  if (ipv6) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    inet_pton(AF_INET6, address.c_str(), &in6->sin6_addr);
    size = sizeof *in6;
  } else {
    auto* in4 = reinterpret_cast<sockaddr_in*>(&storage);
    in4->sin_family = AF_INET;
    in4->sin_port = htons(port);
    inet_pton(AF_INET, address.c_str(), &in4->sin_addr);
    size = sizeof *in4;
  }
  return storage;
}

int try_connect(bool ipv6, const std::string& address, std::uint16_t port) {
  const Descriptor probe{socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!probe) return errno;
  socklen_t size = 0;
  const sockaddr_storage to = socket_address(ipv6, address, port, size);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait{probe.get(), POLLOUT, 0};
  if (poll(&wait, 1, kConnectWaitMs) <= 0) return EINPROGRESS;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(probe.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

absl::Status configure_loopback() {
  Netlink netlink;
  ifinfomsg up{};
  up.ifi_index = kLoopbackIndex;
  up.ifi_flags = IFF_UP;
  up.ifi_change = IFF_UP;
  if (auto status = netlink.change(Request{RTM_NEWLINK, NLM_F_ACK, up}, "bringing lo up"); !status.ok()) return status;
  if (auto status = add_address(netlink, AF_INET, kExtraIpv4); !status.ok()) return status;
  if (auto status = add_local_default(netlink, AF_INET, kExtraIpv4); !status.ok()) return status;
  if (auto status = confine_datagrams(netlink, AF_INET); !status.ok()) return status;
  if (!kernel_has_ipv6()) return absl::OkStatus();
  if (auto status = add_address(netlink, AF_INET6, kExtraIpv6); !status.ok()) return status;
  if (auto status = add_local_default(netlink, AF_INET6, kExtraIpv6); !status.ok()) return status;
  return confine_datagrams(netlink, AF_INET6);
}

bool kernel_has_ipv6() { return Descriptor{socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)}.get() >= 0; }

absl::StatusOr<NetworkFacts> read_network() {
  Netlink netlink;
  NetworkFacts facts;
  absl::Status status = netlink.dump(Request{RTM_GETLINK, NLM_F_DUMP, ifinfomsg{}}, [&facts](const nlmsghdr& m) {
    if (m.nlmsg_type == RTM_NEWLINK) facts.links.push_back(link_fact(m));
  });
  if (!status.ok()) return status;
  status = netlink.dump(Request{RTM_GETADDR, NLM_F_DUMP, ifaddrmsg{}}, [&facts](const nlmsghdr& m) {
    if (m.nlmsg_type == RTM_NEWADDR) facts.addresses.push_back(address_fact(m));
  });
  if (!status.ok()) return status;
  for (const int family : {AF_INET, AF_INET6}) {
    rtmsg routes{};
    routes.rtm_family = static_cast<std::uint8_t>(family);
    status = netlink.dump(Request{RTM_GETROUTE, NLM_F_DUMP, routes}, [&facts](const nlmsghdr& m) {
      if (m.nlmsg_type == RTM_NEWROUTE) facts.routes.push_back(route_fact(m));
    });
    if (!status.ok()) return status;
    fib_rule_hdr rules{};
    rules.family = static_cast<std::uint8_t>(family);
    status = netlink.dump(Request{RTM_GETRULE, NLM_F_DUMP, rules}, [&facts](const nlmsghdr& m) {
      if (m.nlmsg_type == RTM_NEWRULE) facts.rules.push_back(rule_fact(m));
    });
    if (!status.ok()) return status;
  }
  return facts;
}

int probe_datagram(bool ipv6, const std::string& address, std::uint16_t port) {
  const Descriptor probe{socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!probe) return errno;
  socklen_t size = 0;
  const sockaddr_storage to = socket_address(ipv6, address, port, size);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), size) != 0) return errno;
  if (send(probe.get(), "probe", 5, MSG_NOSIGNAL) < 0) return errno;
  pollfd wait{probe.get(), 0, 0};
  if (poll(&wait, 1, kDatagramWaitMs) <= 0) return 0;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(probe.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

std::vector<ProbeResult> probe_outside(const std::vector<OutsideListener>& listeners) {
  constexpr std::uint16_t kDiscardPort = 9;
  std::vector<ProbeResult> results;
  results.push_back({"tcp 198.51.100.1:9", try_connect(false, "198.51.100.1", kDiscardPort)});
  if (kernel_has_ipv6()) results.push_back({"tcp [2001:db8:ffff::1]:9", try_connect(true, "2001:db8:ffff::1", kDiscardPort)});
  for (const OutsideListener& outside : listeners) {
    results.push_back(
        {"tcp " + outside.address + ":" + std::to_string(outside.tcp_port), try_connect(outside.ipv6, outside.address, outside.tcp_port)});
    results.push_back({"udp " + outside.address + ":" + std::to_string(outside.udp_port),
                       probe_datagram(outside.ipv6, outside.address, outside.udp_port)});
  }
  return results;
}

}  // namespace openshell::drivers::process
