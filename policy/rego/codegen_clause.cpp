// Whole clauses and queries, and `with`.
#include "policy/rego/codegen.hpp"
#include "policy/rego/resolve.hpp"
#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

Term variable(std::string name, Position at) {
  Term term;
  term.form = TermForm::variable;
  term.at = at;
  term.name = std::move(name);
  return term;
}

/// True where the query may have more than one answer: its values are then filtered by truth.
bool iterates(const Term& term) {
  if (term.is_variable()) return term.name != "input" && term.name != "data";
  if (term.body) return false;
  for (std::size_t i = term.form == TermForm::call ? 1 : 0; i < term.parts.size(); ++i) {
    if (iterates(term.parts[i])) return true;
  }
  return false;
}

}  // namespace

void Codegen::report() {
  absl::flat_hash_set<std::string> said;
  for (const auto& [name, at] : unsafe_) {
    if (!said.insert(cat(name, ":", at.row, ":", at.column)).second) continue;
    errors_.push_back({std::string(code::kUnsafe), cat("var ", name, " is unsafe"), file_, at});
  }
}

bool Codegen::override_of(const With& with, Plan& plan, std::vector<Override>& overrides) {
  Override made;
  made.at = with.at;
  const Term& target = with.target;
  const Term& head = target.form == TermForm::reference ? target.parts[0] : target;
  const Callee callee = find_callee(root_, target);
  const Callee by = callee.found() ? find_callee(root_, with.value) : Callee{};
  if (callee.found()) {
    made.form = Override::Form::function;
    made.builtin = callee.builtin;
    made.group = callee.group;
    made.by_builtin = by.builtin;
    made.by_group = by.group;
    if (by.group != nullptr) asked.insert(by.group);
  } else {
    made.form = head.is_variable("input") ? Override::Form::input : Override::Form::data;
    for (std::size_t i = 1; i < target.parts.size(); ++i) made.path.push_back(target.parts[i].scalar);
  }
  if (!by.found()) {
    if (!settle(with.value, plan)) return false;
    made.value = value(with.value);
    if (broken_) return false;
  }
  overrides.push_back(std::move(made));
  return true;
}

bool Codegen::with(const Expr& expr, Plan& plan) {
  Step step;
  step.form = Step::Form::with;
  step.at = expr.at;
  for (const auto& one : expr.withs) {
    if (!override_of(one, plan, step.overrides)) return false;
  }
  Plan inner;
  if (!(expr.negated ? negated(expr, inner) : plain(expr, inner))) return false;
  step.plan = std::make_shared<const Plan>(std::move(inner));
  plan.push_back(std::move(step));
  return true;
}

std::unique_ptr<Clause> Codegen::clause(const Rule& rule, const std::vector<Term>& keys) {
  auto made = std::make_unique<Clause>();
  made->at = rule.at;
  made->is_set = rule.is_set;
  scopes_.emplace_back();
  for (const auto& argument : rule.arguments) declare_all(argument);
  for (const auto& argument : rule.arguments) made->arguments.push_back(pattern(argument));
  declare_all(rule.body);
  for (const auto& key : keys) declare_all(key);
  const Term& value_term = rule.is_set ? *rule.key : *rule.value;
  declare_all(value_term);
  made->constant = !rule.is_set && ground(value_term) && value_term.form != TermForm::call;
  bool ok = order(rule.body, made->plan);
  for (const auto& key : keys) ok = ok && settle(key, made->plan);
  ok = ok && settle(value_term, made->plan);
  if (ok && !broken_) {
    for (const auto& key : keys) made->keys.push_back(value(key));
    made->value = value(value_term);
  }
  if (!ok || broken_) report();
  made->slots = slots_;
  return made;
}

Query Codegen::query(const Body& body) {
  bool filter = body.size() > 1;
  for (const auto& expr : body) {
    for (const auto& term : expr.terms) filter = filter || iterates(term);
  }
  auto captured = std::make_unique<Term>();  // holds the statements, whose addresses have to stay
  Body made;
  std::vector<std::string> values;
  std::vector<std::size_t> of_value;  ///< Statement of each.
  for (const auto& expr : body) {
    if (expr.form == ExprForm::some) continue;
    values.emplace_back();
    const bool older = [&] {
      if (expr.form != ExprForm::term || expr.terms[0].form != TermForm::call) return false;
      const Callee callee = find_callee(root_, expr.terms[0].parts[0]);
      return callee.found() && !(callee.builtin != nullptr && callee.builtin->variadic) && expr.terms[0].parts.size() == callee.arity() + 2;
    }();
    if (expr.form != ExprForm::term || expr.negated || older) {
      of_value.push_back(made.size());
      made.push_back(expr);
      continue;
    }
    of_value.push_back(made.size());
    values.back() = cat("$value", made.size());
    Expr unified = expr;
    unified.form = ExprForm::unify;
    unified.terms = {variable(values.back(), expr.at), expr.terms[0]};
    made.push_back(std::move(unified));
    if (!filter) continue;
    Expr test;
    test.at = expr.at;
    test.terms = {variable(values.back(), expr.at)};
    made.push_back(std::move(test));
  }
  captured->body = std::make_shared<const Body>(std::move(made));
  const Body& statements = *captured->body;
  made_.push_back(std::move(captured));
  scopes_.emplace_back();
  declare_all(statements);
  Query query;
  traced_ = &statements;
  if (!order(statements, query.plan) || broken_) report();
  for (const auto* statement : emitted_) {  // values come in the order of evaluation
    const auto index = static_cast<std::size_t>(statement - statements.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (of_value[i] != index) continue;
      query.expressions.push_back(values[i].empty() ? Query::kTrue : find(values[i])->slot);
      query.sources.push_back(i);
    }
  }
  for (const auto& [name, index] : scopes_.back()) {
    if (name.starts_with("$") || name.starts_with("_#")) continue;
    query.bindings.emplace_back(std::string(written_name(name)), variables_[index].slot);
  }
  std::sort(query.bindings.begin(), query.bindings.end());
  query.slots = slots_;
  return query;
}

}  // namespace openshell::policy::rego
