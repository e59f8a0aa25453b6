#pragma once

#include <array>
#include <string>
#include <string_view>

namespace openshell::policy {

inline constexpr std::size_t kSha256Bytes = 32;
/// SHA-256 (FIPS 180-4) of any bytes. Pure, any thread.
[[nodiscard]] std::array<unsigned char, kSha256Bytes> sha256(std::string_view bytes);
/// The same as 64 lower-case hex digits.
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace openshell::policy
