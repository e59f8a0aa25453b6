// What the operators of the language stand for: comparison, arithmetic, sets, membership.
#pragma once

#include "policy/rego/builtins.hpp"

namespace openshell::policy::rego {

/// The evaluator reckons most of them itself; their functions serve where they are called by name or as a replacement.
const BuiltinTable& operator_builtins();

}  // namespace openshell::policy::rego
