// Deleting several things of one kind, as `delete NAME...` of every command group does.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::cli {

/// Calls `one` for each name, which deletes it and says so on stdout. A failure is a line on stderr, and the others go on. 0 where all went
/// well, else INTERNAL with every name that failed. `noun` is singular; `nouns` is its plural.
absl::StatusOr<int> delete_each(const std::vector<std::string>& names, std::string_view noun, std::string_view nouns,
                                const std::function<absl::Status(const std::string& name)>& one);

}  // namespace openshell::cli
