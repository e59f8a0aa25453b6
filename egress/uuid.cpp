#include "egress/uuid.hpp"

#include <sys/random.h>

#include <array>
#include <cstdint>

namespace openshell::egress {

std::string new_uuid() {
  std::array<std::uint8_t, 16> bytes{};
  // getrandom gives up to 256 bytes at once and cannot fail once the pool is initialised (getrandom(2)).
  while (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
  }
  bytes[6] = static_cast<std::uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<std::uint8_t>((bytes[8] & 0x3f) | 0x80);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(36);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out.push_back('-');
    out.push_back(kHex[bytes[i] >> 4]);
    out.push_back(kHex[bytes[i] & 15]);
  }
  return out;
}

}  // namespace openshell::egress
