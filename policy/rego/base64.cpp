#include "policy/rego/base64.hpp"

#include <algorithm>
#include <cstdint>

namespace openshell::policy::rego {
namespace {

constexpr std::string_view kStandard = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kUrl = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string_view digits_of(Base64Alphabet alphabet) { return alphabet == Base64Alphabet::url ? kUrl : kStandard; }

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

}  // namespace

std::string base64_encode(std::string_view bytes, Base64Alphabet alphabet, Base64Padding padding) {
  const auto digits = digits_of(alphabet);
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8U | (j < have ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) {
      if (j <= have) {
        out += digits[group >> (18 - 6 * j) & 63U];
      } else if (padding == Base64Padding::required) {
        out += '=';
      }
    }
  }
  return out;
}

bool base64_decode(std::string_view text, Base64Alphabet alphabet, Base64Padding padding, std::string& bytes, std::size_t& error_at) {
  const auto digits = digits_of(alphabet);
  std::uint32_t group = 0;
  unsigned have = 0;
  std::size_t i = 0;
  const auto flush = [&] {
    for (unsigned j = 0; j + 1 < have; ++j) bytes += static_cast<char>(group >> (16 - 8 * j) & 255U);
  };
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (is_line_end(c)) continue;
    if (c == '=' && padding == Base64Padding::required) break;
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) return error_at = i, false;
    group |= static_cast<std::uint32_t>(digit) << (18 - 6 * have);
    if (++have == 4) {
      flush();
      group = have = 0;
    }
  }
  if (i == text.size()) {
    if (have == 0) return true;
    if (padding == Base64Padding::required || have == 1) return error_at = i - have, false;
    return flush(), true;
  }
  const std::size_t padding_at = i;
  if (have < 2) return error_at = padding_at, false;
  for (unsigned missing = 4 - have; missing > 0; --missing, ++i) {
    while (i < text.size() && is_line_end(text[i])) ++i;
    if (i == text.size()) return error_at = i, false;
    if (text[i] != '=') return error_at = i - (missing == 1 && have == 2 ? 1 : 0), false;
  }
  while (i < text.size() && is_line_end(text[i])) ++i;
  if (i != text.size()) return error_at = i, false;
  return flush(), true;
}

}  // namespace openshell::policy::rego
