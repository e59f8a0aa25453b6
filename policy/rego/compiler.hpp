// Modules to a program, and queries against it.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/error.hpp"
#include "policy/rego/program.hpp"

#include <memory>
#include <variant>
#include <vector>

namespace openshell::policy::rego {

/// The program, or all errors of the first kind found (at least one): `rego_compile_error`, `rego_type_error`, `rego_unsafe_var_error`,
/// `rego_recursion_error`.
/// `pure`: built-ins that read more than their arguments are unknown functions.
std::variant<std::unique_ptr<Program>, Errors> compile(const std::vector<Module>& modules, bool pure = false);

/// The query sees packages by their full names only.
std::variant<Query, Errors> compile_query(const Program& program, const Body& query, bool pure = false);

}  // namespace openshell::policy::rego
