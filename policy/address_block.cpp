#include <arpa/inet.h>

#include <charconv>
#include <cstring>

#include "policy/matcher.hpp"
#include "policy/text.hpp"

namespace openshell::policy {

bool AddressBlock::contains(const std::array<std::uint8_t, 16>& address) const noexcept {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (prefix < 96 && std::memcmp(address.data(), kMapped.data(), kMapped.size()) == 0)
    return false;  // an IPv6 block admits no IPv4 address
  const std::size_t whole = prefix / 8;
  if (std::memcmp(network.data(), address.data(), whole) != 0) return false;
  if (prefix % 8 == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xFF00U >> (prefix % 8));
  return ((network[whole] ^ address[whole]) & mask) == 0;
}

absl::StatusOr<AddressBlock> parse_address_block(std::string_view text) {
  const auto invalid = [text] { return absl::InvalidArgumentError(text::cat("invalid CIDR/IP in allowed_ips: ", text)); };
  const std::string_view trimmed = text::trim(text);
  const auto slash = trimmed.find('/');
  const std::string address{trimmed.substr(0, slash)};
  AddressBlock block;
  unsigned most = 128;
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    most = 32;
    block.network[10] = block.network[11] = 0xFF;
    std::memcpy(block.network.data() + 12, &v4, 4);
  } else if (inet_pton(AF_INET6, address.c_str(), &v6) == 1) {
    std::memcpy(block.network.data(), &v6, 16);
  } else {
    return invalid();
  }
  unsigned bits = most;
  if (slash != std::string_view::npos) {
    const auto digits = trimmed.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    if (error != std::errc{} || end != digits.data() + digits.size() || bits > most) return invalid();
  }
  block.prefix = static_cast<std::uint8_t>(bits + (128 - most));
  for (unsigned bit = block.prefix; bit < 128; ++bit) {
    block.network[bit / 8] = static_cast<std::uint8_t>(block.network[bit / 8] & ~(0x80U >> (bit % 8)));
  }
  return block;
}

}  // namespace openshell::policy
