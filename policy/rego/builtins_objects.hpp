// Built-ins of objects.
#pragma once

#include "policy/rego/builtins.hpp"

namespace openshell::policy::rego {

const BuiltinTable& object_builtins();

}  // namespace openshell::policy::rego
