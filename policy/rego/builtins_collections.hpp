// Built-ins of aggregates, arrays and sets.
#pragma once

#include "policy/rego/builtins.hpp"

namespace openshell::policy::rego {

const BuiltinTable& collection_builtins();

}  // namespace openshell::policy::rego
