#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace openshell::cli {

/// Where the command begins in the older form `sandbox exec -n NAME COMMAND --flag`, whose words are the command's from the first one on
/// that is no option of ours. Nothing for every other command line, a `--` before that word included. `words` is argv.
std::optional<std::size_t> older_exec_command(std::span<const char* const> words);

}  // namespace openshell::cli
