// The trusted resolver: asks the operator's name servers, for permitted names only.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "egress/dns/message.hpp"
#include "egress/io/streams.hpp"
#include "egress/ip_address.hpp"
#include "messages/values.hpp"

namespace openshell::egress::dns {

struct NameServer {
  IpAddress address;
  Port port{53};
};

/// `ADDRESS:PORT` or `[V6]:PORT` each, at most kMaxNameServers. Empty: the first literal `nameserver` of /etc/resolv.conf.
absl::StatusOr<std::vector<NameServer>> parse_name_servers(const std::vector<std::string>& texts);
inline constexpr std::size_t kMaxNameServers = 8;

struct Resolved {
  enum class Outcome : std::uint8_t { kAddresses, kNoData, kNoSuchName, kTimeout, kIoFailed, kMalformed, kErrorResponse, kCnameLimit };
  Outcome outcome = Outcome::kIoFailed;
  std::vector<IpAddress> addresses;
  std::chrono::seconds ttl{0};
};

/// UDP, then TCP where the answer was truncated; the next server where one gives no usable answer; CNAMEs across answers, 8 hops in all.
/// One question at a time per call; calls may overlap. I/O thread.
class Resolver {
 public:
  static constexpr std::chrono::milliseconds kStepTimeout{2000};  ///< each I/O step
  Resolver(std::shared_ptr<asio::io_context> io, std::vector<NameServer> servers) : io_{std::move(io)}, servers_{std::move(servers)} {}
  Task<Resolved> resolve(std::string name, std::uint16_t type);
  [[nodiscard]] std::uint64_t questions() const noexcept { return questions_; }

 private:
  Task<absl::StatusOr<Reply>> ask(NameServer server, std::string name, std::uint16_t type);
  Task<absl::StatusOr<std::string>> over_udp(NameServer server, std::string message);
  Task<absl::StatusOr<std::string>> over_tcp(NameServer server, std::string message);

  std::shared_ptr<asio::io_context> io_;
  std::vector<NameServer> servers_;
  std::uint64_t questions_ = 0;
};

}  // namespace openshell::egress::dns
