#include "policy/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace openshell::policy {

bool is_utf8(std::string_view text) {
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  for (auto at = std::find_if_not(text.begin(), text.end(), ascii); at != text.end(); at = std::find_if_not(at, text.end(), ascii)) {
    const auto first = static_cast<unsigned char>(*at);
    const std::ptrdiff_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.end() - at < length) return false;
    std::uint32_t code = first & (0xFFU >> static_cast<unsigned>(length + 1));
    for (std::ptrdiff_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(*(at + i));
      if ((byte & 0xC0U) != 0x80U) return false;
      code = code << 6U | (byte & 0x3FU);
    }
    if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      return false;
    at += length;
  }
  return true;
}

}  // namespace openshell::policy
