// Whether bytes are text. Pure, any thread.
#pragma once

#include <string_view>

namespace openshell::policy {

/// Valid UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace openshell::policy
