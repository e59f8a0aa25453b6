#pragma once

#include <cstdint>
#include <optional>

namespace openshell::cli {

struct WindowSize {
  std::uint32_t columns = 0;
  std::uint32_t rows = 0;
  friend bool operator==(const WindowSize&, const WindowSize&) = default;
};

/// The size of the terminal behind stdin, else stdout, else stderr; nothing where none is a terminal, or it does not know (0x0).
std::optional<WindowSize> window_size();

}  // namespace openshell::cli
