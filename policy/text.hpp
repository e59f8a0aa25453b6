// Puts messages together. Debian's Abseil has a string_view of its own that std::string_view does not convert to, so its StrCat is of no
// use here.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::text {

inline std::string_view piece(std::string_view value) { return value; }
template <std::integral Number>
requires(!std::same_as<Number, bool> && !std::same_as<Number, char>) std::string piece(Number value) { return std::to_string(value); }

/// Joins texts and whole numbers.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (out.append(piece(parts)), ...);
  return out;
}

inline std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty() || &item != items.data()) out += separator;
    out += item;
  }
  return out;
}

inline std::string lower(std::string_view value) {
  std::string out{value};
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// ASCII letters only, as lower().
inline std::string upper(std::string_view value) {
  std::string out{value};
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

inline std::string_view trim(std::string_view value) {
  const auto first = value.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return value.substr(first, value.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace openshell::policy::text
