// Whether what is called exists and takes as many arguments: `rego_type_error`.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/codegen.hpp"
#include "policy/rego/error.hpp"
#include "policy/rego/program.hpp"

#include <string>

namespace openshell::policy::rego {

/// Walks resolved rules and bodies.
class CallCheck {
 public:
  CallCheck(const Node& root, std::string file, bool pure, Errors& errors)
      : root_(root), file_(std::move(file)), pure_(pure), errors_(errors) {}

  void rule(const Rule& rule);
  void body(const Body& body);

 private:
  void term(const Term& term);
  void call(const Term& call, bool statement);
  void with(const With& with);
  [[nodiscard]] bool refused(const Callee& callee) const { return pure_ && callee.builtin != nullptr && callee.builtin->nondeterministic; }
  void error(Position at, std::string message) { errors_.push_back({std::string(code::kType), std::move(message), file_, at}); }

  const Node& root_;
  std::string file_;
  bool pure_;  ///< Built-ins that read more than their arguments are unknown.
  Errors& errors_;
};

}  // namespace openshell::policy::rego
