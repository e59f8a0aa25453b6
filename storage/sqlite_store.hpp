#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "storage/store.hpp"

namespace openshell::storage {

/// One writing connection on a thread of its own, four reading ones on theirs (none in memory: there everything goes through the writer).
/// `path` empty: in memory.
absl::StatusOr<std::unique_ptr<Store>> open_sqlite(const std::string& path);

}  // namespace openshell::storage
