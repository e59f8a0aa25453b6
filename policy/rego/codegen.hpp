// Bodies to plans: puts statements in an order in which every variable gets its value before it is used, and says which variable never
// does.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/program.hpp"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

/// What a call or the target of a `with` names.
struct Callee {
  const Builtin* builtin = nullptr;
  RuleGroup* group = nullptr;
  [[nodiscard]] bool found() const { return builtin != nullptr || group != nullptr; }
  [[nodiscard]] std::size_t arity() const { return builtin != nullptr ? builtin->arguments.size() : group != nullptr ? group->arity : 0; }
};
Callee find_callee(const Node& root, const Term& function);
/// `a.b.c` of a variable or a reference.
std::string dotted(const Term& term);

/// One clause, or one query. Not to be used twice.
class Codegen {
 public:
  Codegen(const Node& root, std::string file, Errors& errors) : root_(root), file_(std::move(file)), errors_(errors) {}

  /// `keys`: the parts of the rule's name that are no fixed names.
  std::unique_ptr<Clause> clause(const Rule& rule, const std::vector<Term>& keys);
  Query query(const Body& body);

  /// `rego_type_error` of arguments and of values that can never be equal.
  Errors type_errors;

  /// Groups the code asks, with the paths that name many of them expanded.
  absl::flat_hash_set<const RuleGroup*> asked;

 private:
  struct Variable {
    std::string name;
    Slot slot;
    bool bound;
    Type type = types::any();
  };
  using Scope = absl::flat_hash_map<std::string, std::size_t>;
  /// Where a failed attempt returns to.
  struct Mark {
    std::size_t trail, variables, unsafe;
    Slot slots;
  };

  // Variables.
  [[nodiscard]] const Variable* find(const std::string& name) const;
  Variable* find(const std::string& name) { return const_cast<Variable*>(std::as_const(*this).find(name)); }
  void declare(const std::string& name);
  void declare_all(const Term& term);
  void declare_all(const Body& body);
  void bind(Variable& variable);
  Slot new_slot() { return slots_++; }
  bool unsafe(const Term& variable);
  [[nodiscard]] Mark mark() const { return {trail_.size(), variables_.size(), unsafe_.size(), slots_}; }
  void undo(const Mark& mark);

  // Readiness: whether every variable outside of closures has its value.
  bool ground(const Term& term, bool report = false);
  bool closure_ready(const Term& term, bool report);
  bool closure_body_ready(const Body& body, bool report, const absl::flat_hash_set<std::string>& own);

  // Bodies.
  bool order(const Body& body, Plan& plan);
  bool attempt(const Expr& expr, Plan& plan);
  bool expr(const Expr& expr, Plan& plan);
  void forget(const Term& term);
  void forget(const Expr& expr);
  bool plain(const Expr& expr, Plan& plan);
  bool negated(const Expr& expr, Plan& plan);
  bool with(const Expr& expr, Plan& plan);
  bool some_in(const Expr& expr, Plan& plan);
  bool every(const Expr& expr, Plan& plan);
  bool test(const Term& term, Plan& plan, Position at);
  bool unify(const Term& left, const Term& right, Plan& plan, Position at);
  bool one_pair(const Term& left, const Term& right, Plan& plan, Position at, bool report);
  bool override_of(const With& with, Plan& plan, std::vector<Override>& overrides);
  void report();

  // Terms.
  bool settle(const Term& term, Plan& plan);  ///< Hoists all it can; true when the term is ground then.
  bool hoist(const Term& term, Plan& plan);   ///< True when something was hoisted.
  bool scan(const Term& reference, Pattern out, Plan& plan);
  bool can_scan(const Term& reference);
  bool path_ready(const Term& part);
  Expression value(const Term& term);
  Expression reference(const Term& term);
  Expression data(const Term& term, std::size_t& used);
  Expression call(const Term& term);
  Expression comprehension(const Term& term);
  Expression printed(const Term& term);
  Pattern pattern(const Term& term);
  bool has_free(const Term& term) const;

  // Types (codegen_types.cpp).
  Type type_of(const Term& term) const;
  static std::optional<Type> selected(const Type& from, const Term& key);
  void give_type(const Term& pattern, const Type& type);
  void check_arguments(const Term& call, const Builtin& builtin);
  void check_reference(const Term& reference);
  void check_match(const Term& left, const Term& right, Position at);
  void type_error(Position at, std::string message);
  void asks(const Term& reference);
  void asks_below(const Node& node);
  bool is_relation(const Term& call) const;

  const Node& root_;
  std::string file_;
  Errors& errors_;
  std::vector<Variable> variables_;
  std::vector<Scope> scopes_;
  std::vector<std::size_t> trail_;
  Slot slots_ = 0;
  absl::flat_hash_map<const Term*, Slot> hoisted_;
  absl::flat_hash_map<const Term*, Type> comprehended_;  ///< Types of comprehensions.
  std::vector<std::pair<std::string, Position>> unsafe_;
  std::vector<std::unique_ptr<Term>> made_;  ///< Terms of our own that the code points at.
  const Body* traced_ = nullptr;             ///< The query's own body, and its statements in the order they were taken.
  std::vector<const Expr*> emitted_;
  bool broken_ = false;  ///< A closure had an error of its own: said already.
};

}  // namespace openshell::policy::rego
