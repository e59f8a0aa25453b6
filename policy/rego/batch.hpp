// One line of `rego batch`: a case as JSON in, its answers or its error as JSON out.
#pragma once

#include "policy/rego/machine.hpp"

#include <string>
#include <string_view>

namespace openshell::policy::rego {

/// Never fails: what is wrong with the line is in the answer, as `{"id", "error": {"code", "message"}}`.
std::string answer_case(std::string_view line, Limits limits = {});

/// `[{"expressions": [{"value"}], "bindings": {}}]`
Value answers_document(const std::vector<Answer>& answers);

}  // namespace openshell::policy::rego
