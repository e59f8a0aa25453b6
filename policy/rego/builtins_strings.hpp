// Built-ins of strings.
#pragma once

#include "policy/rego/builtins.hpp"

namespace openshell::policy::rego {

const BuiltinTable& string_builtins();

}  // namespace openshell::policy::rego
