#include "actors/introspection/shown_text.hpp"

#include <algorithm>

#include "observability/log.hpp"

namespace openshell {
namespace {

constexpr std::size_t kMaxLooked = 4'096;  // bytes of a text that are looked at; the rest would be cut anyway

/// Bytes of the UTF-8 character at `at`; 0: none begins there.
std::size_t character(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 && first < 0xF5 ? 4 : first >= 0xE0 && first < 0xF0 ? 3 : first >= 0xC2 && first < 0xE0 ? 2 : 0;
  if (size == 0 || at + size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  const auto second = static_cast<unsigned char>(text[at + 1]);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
      (first == 0xF4 && second > 0x8F))
    return 0;
  if (first == 0xC2 && second < 0xA0) return 0;  // C1 controls
  return size;
}

}  // namespace

std::string shown_text(std::string_view text, std::size_t limit) {
  const auto hidden = log::redacted(text.substr(0, kMaxLooked));
  std::string out;
  out.reserve(std::min(hidden.size(), limit));
  for (std::size_t at = 0; at < hidden.size();) {
    const auto size = character(hidden, at);
    const auto byte = static_cast<unsigned char>(hidden[at]);
    const bool plain = size > 0 && byte >= 0x20 && byte != 0x7F;
    if (out.size() + std::max<std::size_t>(size, 1) > limit) break;
    if (plain) {
      out.append(hidden, at, size);
    } else {
      out += size == 0 ? '?' : ' ';
    }
    at += std::max<std::size_t>(size, 1);
  }
  return out;
}

}  // namespace openshell
