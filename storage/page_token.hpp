// Page tokens: base64url of {1 byte version, 16 bytes of SHA-256 over the request's parameters, the cursor} and 16 bytes of HMAC-SHA-256
// over all of it.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>

#include "storage/store.hpp"

namespace openshell::storage {

std::string make_page_token(std::string_view key, std::string_view binding, const Cursor& cursor);
absl::StatusOr<std::optional<Cursor>> read_page_token(std::string_view key, std::string_view binding, std::string_view token);

}  // namespace openshell::storage
