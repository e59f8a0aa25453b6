#pragma once

#include <optional>
#include <string>

namespace openshell::cli {

/// The first executable of that name in the folders of PATH, an empty one of which is the working directory (environ(7)).
std::optional<std::string> find_program(const std::string& name);

}  // namespace openshell::cli
