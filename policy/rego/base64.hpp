// Base64 (RFC 4648), in the strictness of the Rego built-ins.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace openshell::policy::rego {

enum class Base64Alphabet { standard, url };
enum class Base64Padding { required, none };

std::string base64_encode(std::string_view bytes, Base64Alphabet alphabet, Base64Padding padding);

/// Line ends are skipped. False: `error_at` is the byte that is wrong.
bool base64_decode(std::string_view text, Base64Alphabet alphabet, Base64Padding padding, std::string& bytes, std::size_t& error_at);

}  // namespace openshell::policy::rego
