#pragma once

#include <string>
#include <string_view>

namespace openshell::policy {

/// SHA-256 of any bytes, 64 lower-case hex digits. (hash.cpp)
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace openshell::policy
