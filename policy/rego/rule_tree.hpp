// Where each rule stands in the tree of packages, and which do not go together.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/error.hpp"
#include "policy/rego/program.hpp"
#include "policy/rego/resolve.hpp"

#include <vector>

namespace openshell::policy::rego {

/// A rule with its place: the group it belongs to and the parts of its name that are no fixed names.
struct PlacedRule {
  const Module* module = nullptr;
  const Globals* globals = nullptr;
  const Rule* rule = nullptr;
  RuleGroup* group = nullptr;
  std::size_t fixed = 0;  ///< Parts of the name before those.
};

/// Makes nodes and groups. Errors of kind `rego_type_error`.
std::vector<PlacedRule> place_rules(const std::vector<Module>& modules, const std::vector<Globals>& globals, Program& program,
                                    Errors& errors);

/// What the names of a module mean: its package's rules (of all modules of the package) and its imports. Errors of kind
/// `rego_compile_error`.
std::vector<Globals> names_of(const std::vector<Module>& modules, Errors& errors);

}  // namespace openshell::policy::rego
