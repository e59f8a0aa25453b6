// Text that a command reads whole: a file, or `-` for stdin.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <string>

namespace openshell::cli {

/// At most `limit` bytes, also of a device that never ends; `what` names the text in errors ("policy file").
absl::StatusOr<std::string> read_text_source(const std::string& path, std::size_t limit, const std::string& what);

/// How messages call it: the path, or `<stdin>`.
[[nodiscard]] std::string source_name(const std::string& path);

}  // namespace openshell::cli
