// The commands of `rego`. Each gives the program's exit code.
#pragma once

#include "programs/rego/arguments.hpp"

namespace openshell::rego_program {

int evaluate(const Arguments& arguments);   ///< 0; 1 with --fail where undefined; 2 on errors.
int run_tests(const Arguments& arguments);  ///< 0; 2 where a test fails or something cannot be loaded.
int batch();

}  // namespace openshell::rego_program
