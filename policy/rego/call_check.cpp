#include "policy/rego/call_check.hpp"

#include "policy/rego/codegen.hpp"
#include "policy/rego/resolve.hpp"
#include "policy/text.hpp"

namespace openshell::policy::rego {

using openshell::policy::text::cat;

void CallCheck::rule(const Rule& rule) {
  for (const auto& argument : rule.arguments) term(argument);
  body(rule.body);
  if (rule.key) term(*rule.key);
  if (rule.value) term(*rule.value);
  for (const auto& part : rule.name.parts) term(part);
  if (rule.otherwise) this->rule(*rule.otherwise);
}

void CallCheck::body(const Body& body) {
  for (const auto& expr : body) {
    for (const auto& one : expr.terms) {
      if (expr.form == ExprForm::term && one.form == TermForm::call) {
        call(one, true);
      } else {
        term(one);
      }
    }
    if (expr.body) this->body(*expr.body);
    for (const auto& one : expr.withs) with(one);
  }
}

void CallCheck::term(const Term& term) {
  if (term.form == TermForm::call) return call(term, false);
  for (const auto& part : term.parts) this->term(part);
  if (term.body) body(*term.body);
}

void CallCheck::call(const Term& term, bool statement) {
  for (std::size_t i = 1; i < term.parts.size(); ++i) this->term(term.parts[i]);
  const Callee callee = find_callee(root_, term.parts[0]);
  const std::string name(written_name(dotted(term.parts[0])));
  if (!callee.found() || refused(callee)) return error(term.at, cat("undefined function ", name));
  const std::size_t given = term.parts.size() - 1;
  const std::size_t wanted = callee.arity();
  if (callee.builtin != nullptr && callee.builtin->variadic) {
    if (given < wanted) error(term.at, cat(name, ": arity mismatch: have ", given, ", want at least ", wanted));
    return;
  }
  if (given == wanted || (statement && given == wanted + 1)) return;
  if (given < wanted || callee.group != nullptr)
    return error(term.at, cat("function ", name, " has arity ", wanted, ", got ", given, given == 1 ? " argument" : " arguments"));
  error(term.at, cat(name, ": arity mismatch: have ", given, ", want ", wanted));
}

void CallCheck::with(const With& with) {
  const Term& target = with.target;
  const Term& head = target.form == TermForm::reference ? target.parts[0] : target;
  const Callee callee = find_callee(root_, target);
  if (!callee.found()) {
    term(with.value);
    const bool document = head.is_variable("input") || head.is_variable("data");
    if (!document) return error(with.at, "with keyword target must reference existing input, data, or a function");
    for (std::size_t i = 1; i < target.parts.size(); ++i) {
      if (target.parts[i].form != TermForm::scalar) return error(with.at, "with keyword target must be a reference without variables");
    }
    return;
  }
  const Callee by = find_callee(root_, with.value);
  if (!by.found()) return term(with.value);
  if (refused(by)) return error(with.at, cat("undefined function ", dotted(with.value)));
  if (by.arity() != callee.arity()) {
    error(with.at, cat(dotted(target), ": arity mismatch: replaced by a function of ", by.arity(), " arguments, want ", callee.arity()));
  }
}

}  // namespace openshell::policy::rego
