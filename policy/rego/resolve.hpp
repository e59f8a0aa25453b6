// Names: what a variable refers to. Gives every declared variable a name of its own, and every name of a rule or an import its full path.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/error.hpp"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

/// What the names of one module mean outside of its bodies.
struct Globals {
  /// Name to path: `data`, package, rule; or what an import gives.
  absl::flat_hash_map<std::string, std::vector<std::string>> paths;
};

/// Declared variables are renamed: `x` of the third declaration to `x#3`; a wildcard to `_#4`. The name up to `#` is what was written.
std::string_view written_name(std::string_view name);

class Resolver {
 public:
  /// `strict`: the rules of v1, where nothing may be named `input` or `data`.
  Resolver(const Globals& globals, std::string file, bool strict, Errors& errors)
      : globals_(globals), file_(std::move(file)), strict_(strict), errors_(errors) {}

  /// Body, head and else branches of a rule.
  Rule rule(const Rule& rule);
  Body query(const Body& body);

 private:
  enum class Seen : std::uint8_t { used, assigned, declared, argument };
  struct Scope {
    absl::flat_hash_map<std::string, std::pair<Seen, std::string>> names;
    absl::flat_hash_set<std::string> later;  ///< Declared somewhere in this body: no global is meant by them.
  };

  Body body(const Body& body);
  Expr expr(const Expr& expr);
  Term term(const Term& term);
  Term variable(const Term& term);
  Term reference(const Term& term);
  Term call(const Term& term);
  Term comprehension(const Term& term);
  Term pattern(const Term& term, Seen how);
  Term declare(const Term& term, Seen how);
  Term target(const Term& term);
  Term global(const std::vector<std::string>& path, Position at) const;
  const std::vector<std::string>* find_global(const std::string& name) const;
  const std::string* find_local(const std::string& name) const;
  void check_wildcards(const Term& term);
  void check_used(const Term& variable);
  void collect_later(const Body& body);
  void error(Position at, std::string message);

  const Globals& globals_;
  std::string file_;
  bool strict_;
  Errors& errors_;
  std::vector<Scope> scopes_;
  unsigned count_ = 0;
  absl::flat_hash_set<std::string> used_;  ///< Declared names that something refers to.
  std::vector<Term> declared_;             ///< By `some` alone.
};

}  // namespace openshell::policy::rego
