// Whether what is called exists and takes as many arguments: `rego_type_error`.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/error.hpp"
#include "policy/rego/program.hpp"

#include <string>

namespace openshell::policy::rego {

/// Walks resolved rules and bodies.
class CallCheck {
 public:
  CallCheck(const Node& root, std::string file, Errors& errors) : root_(root), file_(std::move(file)), errors_(errors) {}

  void rule(const Rule& rule);
  void body(const Body& body);

 private:
  void term(const Term& term);
  void call(const Term& call, bool statement);
  void with(const With& with);
  void error(Position at, std::string message) { errors_.push_back({std::string(code::kType), std::move(message), file_, at}); }

  const Node& root_;
  std::string file_;
  Errors& errors_;
};

}  // namespace openshell::policy::rego
