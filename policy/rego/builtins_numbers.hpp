// Built-ins of numbers and bits.
#pragma once

#include "policy/rego/builtins.hpp"

namespace openshell::policy::rego {

const BuiltinTable& number_builtins();

}  // namespace openshell::policy::rego
