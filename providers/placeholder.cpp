#include "providers/placeholder.hpp"

#include <algorithm>
#include <charconv>

#include "observability/text.hpp"

namespace openshell::providers {
namespace {

constexpr std::size_t kHandleDigits = 64;

bool is_key_byte(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }
bool is_key(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_key_byte); }

/// Length of `v<digits>` before a `_` and a key; 0: not of that form.
std::size_t revision_part(std::string_view text) {
  if (!text.starts_with('v')) return 0;
  std::size_t end = 1;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end > 1 && end < text.size() && text[end] == '_' && is_key(text.substr(end + 1)) ? end : 0;
}

bool has_handle_part(std::string_view text) {
  return text.size() > kHandleDigits + 2 && text.front() == 's' && text[kHandleDigits + 1] == '_' &&
         std::all_of(text.begin() + 1, text.begin() + 1 + kHandleDigits, is_hex) && is_key(text.substr(kHandleDigits + 2));
}

}  // namespace

std::string placeholder(std::uint64_t revision, std::string_view key) {
  return revision == 0 ? cat(kPlaceholderMarker, key) : cat(kPlaceholderMarker, "v", revision, "_", key);
}

std::string stable_placeholder(std::string_view handle, std::string_view key) { return cat(kPlaceholderMarker, "s", handle, "_", key); }

std::optional<Placeholder> parse_placeholder(std::string_view text) {
  if (!text.starts_with(kPlaceholderMarker)) return std::nullopt;
  text.remove_prefix(kPlaceholderMarker.size());
  if (!is_key(text)) return std::nullopt;
  if (has_handle_part(text))
    return Placeholder{std::string{text.substr(kHandleDigits + 2)}, std::nullopt, std::string{text.substr(1, kHandleDigits)}};
  if (const std::size_t end = revision_part(text); end != 0) {
    std::uint64_t revision = 0;
    const auto [stop, error] = std::from_chars(text.data() + 1, text.data() + end, revision);
    if (error != std::errc{} || stop != text.data() + end) return std::nullopt;
    return Placeholder{std::string{text.substr(end + 1)}, revision, {}};
  }
  return Placeholder{std::string{text}, std::nullopt, {}};
}

bool is_reserved_name(std::string_view name) { return revision_part(name) != 0 || has_handle_part(name); }

}  // namespace openshell::providers
