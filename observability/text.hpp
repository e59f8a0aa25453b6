// Joining text. Debian's Abseil has a string_view of its own, which std::string_view does not convert to; absl::StrCat and absl::Status
// take the former only.
#pragma once

#include <absl/strings/string_view.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace openshell {

namespace internal {
template <class Part>
void append(std::string& out, const Part& part) {
  if constexpr (std::is_same_v<Part, char>) {
    out += part;
  } else if constexpr (std::is_arithmetic_v<Part>) {
    out += std::to_string(part);
  } else if constexpr (std::is_same_v<Part, absl::string_view>) {
    out.append(part.data(), part.size());
  } else {
    out += std::string_view{part};
  }
}
}  // namespace internal

/// Text, characters and numbers, one after the other.
template <class... Parts>
[[nodiscard]] std::string cat(const Parts&... parts) {
  std::string out;
  (internal::append(out, parts), ...);
  return out;
}

inline absl::string_view to_absl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view to_std(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace openshell
