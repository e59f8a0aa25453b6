#pragma once

#include <string>
#include <string_view>

namespace openshell::boundary {

/// SHA-256 of `bytes` as 64 lower-case hexadecimal digits: the one spelling of digests on the channel.
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace openshell::boundary
