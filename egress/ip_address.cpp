#include "egress/ip_address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace openshell::egress {
namespace {

constexpr std::size_t kMappedPrefixBytes = 12;  // ten zero bytes and ff ff, RFC 4291 section 2.5.5.2

bool is_mapped(const IpAddress::Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](auto b) { return b == 0; }) && bytes[10] == 0xff && bytes[11] == 0xff;
}

}  // namespace

IpAddress IpAddress::v4(std::uint32_t host_order) noexcept {
  IpAddress out;
  for (std::size_t i = 0; i < 4; ++i) out.bytes_[i] = static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
  return out;
}

IpAddress IpAddress::v6(const Bytes& bytes) noexcept {
  IpAddress out;
  out.family_ = Family::kV6;
  out.bytes_ = bytes;
  return out;
}

absl::StatusOr<IpAddress> IpAddress::parse(std::string_view text) {
  const std::string copy{text};
  Bytes bytes{};
  if (copy.find(':') == std::string::npos) {
    // inet_pton takes four decimal numbers only; leading zeros, which other parsers read as octal, are refused here.
    bool leading_zero = false;
    for (std::size_t i = 0; i + 1 < copy.size(); ++i) {
      leading_zero = leading_zero || (copy[i] == '0' && (i == 0 || copy[i - 1] == '.') && copy[i + 1] != '.');
    }
    if (!leading_zero && copy.size() == text.size() && inet_pton(AF_INET, copy.c_str(), bytes.data()) == 1) {
      IpAddress out;
      out.bytes_ = bytes;
      return out;
    }
  } else if (inet_pton(AF_INET6, copy.c_str(), bytes.data()) == 1) {
    return v6(bytes);
  }
  return absl::InvalidArgumentError(fmt::format("'{}' is not an IP address", text));
}

std::uint32_t IpAddress::v4_value() const noexcept {
  return std::uint32_t{bytes_[0]} << 24 | std::uint32_t{bytes_[1]} << 16 | std::uint32_t{bytes_[2]} << 8 | bytes_[3];
}

IpAddress IpAddress::unmapped() const noexcept {
  if (family_ == Family::kV4 || !is_mapped(bytes_)) return *this;
  IpAddress out;
  std::copy_n(bytes_.begin() + kMappedPrefixBytes, 4, out.bytes_.begin());
  return out;
}

bool IpAddress::is_loopback() const noexcept {
  const auto plain = unmapped();
  if (plain.is_v4()) return plain.bytes_[0] == 127;
  constexpr Bytes kLoopback6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return plain.bytes_ == kLoopback6;
}

std::string IpAddress::str() const {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(is_v4() ? AF_INET : AF_INET6, bytes_.data(), text, sizeof text);
  return text;
}

absl::StatusOr<IpNetwork> IpNetwork::parse(std::string_view text) {
  const auto slash = text.find('/');
  auto base = IpAddress::parse(text.substr(0, slash));
  if (!base.ok()) return absl::InvalidArgumentError(fmt::format("'{}' is neither an IP address nor a CIDR block", text));
  const unsigned most = base->is_v4() ? 32 : 128;
  unsigned prefix = most;
  if (slash != std::string_view::npos) {
    const auto digits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), prefix);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size() || prefix > most) {
      return absl::InvalidArgumentError(fmt::format("'{}': the prefix length must be 0 to {}", text, most));
    }
  }
  return IpNetwork{*base, static_cast<std::uint8_t>(prefix)};
}

bool IpNetwork::contains(const IpAddress& address) const noexcept {
  const IpAddress candidate = base.is_v4() ? address.unmapped() : address;
  if (candidate.family() != base.family()) return false;
  for (unsigned bit = 0; bit < prefix; bit += 8) {
    const unsigned left = prefix - bit;
    const auto mask = static_cast<std::uint8_t>(left >= 8 ? 0xff : 0xff << (8 - left));
    if ((candidate.bytes()[bit / 8] & mask) != (base.bytes()[bit / 8] & mask)) return false;
  }
  return true;
}

}  // namespace openshell::egress
