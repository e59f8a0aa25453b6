// An IP address as a value: what a destination is compared by. No sockets, no resolver.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openshell::egress {

/// IPv4 or IPv6 address. IPv4-mapped IPv6 (`::ffff:a.b.c.d`) is a different value from its IPv4 form until `unmapped()`.
class IpAddress {
 public:
  enum class Family : std::uint8_t { kV4, kV6 };
  using Bytes = std::array<std::uint8_t, 16>;

  IpAddress() = default;  ///< 0.0.0.0
  static IpAddress v4(std::uint32_t host_order) noexcept;
  static IpAddress v6(const Bytes& bytes) noexcept;
  /// Strict text form: dotted quad without leading zeros, or RFC 4291 text without scope. Brackets are not accepted.
  /// Decimal, octal and hexadecimal spellings of IPv4 are refused.
  static absl::StatusOr<IpAddress> parse(std::string_view text);

  [[nodiscard]] Family family() const noexcept { return family_; }
  [[nodiscard]] bool is_v4() const noexcept { return family_ == Family::kV4; }
  /// Meaningful for IPv4 only.
  [[nodiscard]] std::uint32_t v4_value() const noexcept;
  /// IPv4: the first four bytes; IPv6: all sixteen.
  [[nodiscard]] const Bytes& bytes() const noexcept { return bytes_; }
  /// The IPv4 address inside `::ffff:0:0/96`, else this address.
  [[nodiscard]] IpAddress unmapped() const noexcept;
  /// 127.0.0.0/8 or ::1; an IPv4-mapped address counts as its IPv4 form.
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] std::string str() const;
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;

 private:
  Family family_ = Family::kV4;
  Bytes bytes_{};
};

/// A CIDR block. A bare address is a block of one.
struct IpNetwork {
  IpAddress base;
  std::uint8_t prefix = 32;

  static absl::StatusOr<IpNetwork> parse(std::string_view text);
  /// IPv4-mapped addresses are compared by their IPv4 form.
  [[nodiscard]] bool contains(const IpAddress& address) const noexcept;
};

}  // namespace openshell::egress
