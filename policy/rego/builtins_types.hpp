// Built-ins that ask for a kind or change it.
#pragma once

#include "policy/rego/builtins.hpp"

namespace openshell::policy::rego {

const BuiltinTable& type_builtins();

}  // namespace openshell::policy::rego
