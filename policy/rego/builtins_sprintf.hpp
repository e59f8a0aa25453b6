// `sprintf`: verbs as the language's own program knows them.
#pragma once

#include "policy/rego/builtins.hpp"

#include <span>
#include <string_view>

namespace openshell::policy::rego {

/// What does not fit a verb is written into the text (`%!d(string=x)`), never an error.
BuiltinResult format_values(QueryContext& context, std::string_view format, std::span<const Value> values);

}  // namespace openshell::policy::rego
