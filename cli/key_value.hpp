// What stands behind flags like --env and --label: KEY=VALUE.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace openshell::cli {

/// Cut at the first '='. Nothing: there is no '=', or no key before it.
inline std::optional<std::pair<std::string, std::string>> key_value(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  return std::pair{std::string{word.substr(0, equals)}, std::string{word.substr(equals + 1)}};
}

}  // namespace openshell::cli
