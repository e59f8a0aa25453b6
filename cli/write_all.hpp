#pragma once

#include <absl/status/status.h>

#include <string_view>

namespace openshell::cli {

/// All bytes to a file, pipe or socket; waits where it takes no more, also where somebody who shares it made it non-blocking. A reader that
/// is gone is an error: SIGPIPE is ignored in this program (app.cpp).
absl::Status write_all(int fd, std::string_view bytes);

}  // namespace openshell::cli
