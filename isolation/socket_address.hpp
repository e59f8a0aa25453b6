// An INET or INET6 address with a port, as a value: parsed once from what the workload passed, then compared and printed without touching
// its memory again.
#pragma once

#include <absl/status/statusor.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace openshell::isolation {

class SocketAddress {
 public:
  SocketAddress() = default;
  /// From a sockaddr copy of 16..128 bytes; InvalidArgument for another family or too few bytes.
  static absl::StatusOr<SocketAddress> from_sockaddr(std::span<const std::byte> bytes);
  /// From a numeric literal ("192.0.2.7", "2001:db8::7"); no names.
  static absl::StatusOr<SocketAddress> parse(std::string_view literal, std::uint16_t port);

  [[nodiscard]] bool is_ipv6() const noexcept { return v6_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] bool is_v4_mapped() const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;     ///< 127/8, ::1, and the mapped form
  [[nodiscard]] bool is_unspecified() const noexcept;  ///< 0.0.0.0, ::, and the mapped form
  /// The IPv4 address inside a mapped one; any other unchanged. What policies compare.
  [[nodiscard]] SocketAddress normalized() const noexcept;
  [[nodiscard]] SocketAddress with_port(std::uint16_t port) const noexcept;
  [[nodiscard]] std::string address_text() const;  ///< "192.0.2.7", "2001:db8::7"
  [[nodiscard]] std::string text() const;          ///< "192.0.2.7:443", "[2001:db8::7]:443"

  /// Fills `storage` and returns the length for bind and connect.
  socklen_t to_sockaddr(sockaddr_storage& storage) const noexcept;

  friend auto operator<=>(const SocketAddress&, const SocketAddress&) = default;

 private:
  bool v6_ = false;
  std::array<std::uint8_t, 16> bytes_{};  ///< first 4 for IPv4
  std::uint16_t port_ = 0;
  std::uint32_t scope_ = 0;
};

}  // namespace openshell::isolation
