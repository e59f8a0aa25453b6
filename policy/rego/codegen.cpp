// Statements in order.
#include "policy/rego/codegen.hpp"

#include "policy/rego/resolve.hpp"
#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

bool is_closure(const Term& term) {
  return term.form == TermForm::array_comprehension || term.form == TermForm::set_comprehension ||
         term.form == TermForm::object_comprehension;
}

template <typename Visit>
void each_variable(const Body& body, const Visit& visit);

/// All variables, those of closures too.
template <typename Visit>
void each_variable(const Term& term, const Visit& visit) {
  if (term.is_variable()) visit(term);
  for (std::size_t i = term.form == TermForm::call ? 1 : 0; i < term.parts.size(); ++i) each_variable(term.parts[i], visit);
  if (term.body) each_variable(*term.body, visit);
}

template <typename Visit>
void each_variable(const Body& body, const Visit& visit) {
  for (const auto& expr : body) {
    for (const auto& term : expr.terms) each_variable(term, visit);
    if (expr.body) each_variable(*expr.body, visit);
    for (const auto& with : expr.withs) each_variable(with.value, visit);
  }
}

/// Pairs that have to be equal one by one, where both sides are literals.
void pair_up(const Term& left, const Term& right, std::vector<std::pair<const Term*, const Term*>>& pairs, bool& never) {
  if (left.form == TermForm::array && right.form == TermForm::array) {
    if (left.parts.size() != right.parts.size()) {
      never = true;
    } else {
      for (std::size_t i = 0; i < left.parts.size(); ++i) pair_up(left.parts[i], right.parts[i], pairs, never);
    }
    return;
  }
  if (left.form == TermForm::object && right.form == TermForm::object && left.parts.size() == right.parts.size()) {
    std::vector<std::pair<const Term*, const Term*>> found;
    for (std::size_t i = 0; i + 1 < left.parts.size(); i += 2) {
      for (std::size_t j = 0; j + 1 < right.parts.size(); j += 2) {
        if (left.parts[i].form == TermForm::scalar && right.parts[j].form == TermForm::scalar &&
            left.parts[i].scalar == right.parts[j].scalar) {
          found.emplace_back(&left.parts[i + 1], &right.parts[j + 1]);
        }
      }
    }
    if (found.size() == left.parts.size() / 2) {
      for (const auto& [l, r] : found) pair_up(*l, *r, pairs, never);
      return;
    }
  }
  pairs.emplace_back(&left, &right);
}

}  // namespace

const Codegen::Variable* Codegen::find(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(name); found != scope->end()) return &variables_[found->second];
  }
  return nullptr;
}

void Codegen::declare(const std::string& name) {
  if (name == "input" || name == "data" || find(name) != nullptr) return;
  scopes_.back()[name] = variables_.size();
  variables_.push_back({name, new_slot(), false, types::any()});
}

/// Variables outside of closures.
void Codegen::declare_all(const Term& term) {
  if (term.is_variable()) declare(term.name);
  if (is_closure(term)) return;
  for (std::size_t i = term.form == TermForm::call ? 1 : 0; i < term.parts.size(); ++i) declare_all(term.parts[i]);
}

void Codegen::declare_all(const Body& body) {
  for (const auto& expr : body) {
    const std::size_t count = expr.form == ExprForm::every ? expr.terms.size() - 1 : 0;
    for (std::size_t i = count; i < expr.terms.size(); ++i) declare_all(expr.terms[i]);
    for (const auto& with : expr.withs) {
      if (!find_callee(root_, with.value).found()) declare_all(with.value);
    }
  }
}

void Codegen::bind(Variable& variable) {
  variable.bound = true;
  trail_.push_back(static_cast<std::size_t>(&variable - variables_.data()));
}

bool Codegen::unsafe(const Term& variable) {
  unsafe_.emplace_back(written_name(variable.name), variable.at);
  return false;
}

void Codegen::undo(const Mark& mark) {
  while (trail_.size() > mark.trail) {
    if (trail_.back() < variables_.size()) variables_[trail_.back()].bound = false;
    trail_.pop_back();
  }
  variables_.erase(variables_.begin() + static_cast<std::ptrdiff_t>(mark.variables), variables_.end());
  slots_ = mark.slots;
}

bool Codegen::closure_ready(const Term& term, bool report) {
  bool ready = true;
  const auto check = [&](const Term& variable) {
    const auto* known = find(variable.name);
    if (known == nullptr || known->bound) return;
    ready = false;
    if (report) unsafe(variable);
  };
  each_variable(*term.body, check);
  for (const auto& part : term.parts) each_variable(part, check);
  return ready;
}

bool Codegen::closure_body_ready(const Body& body, bool report, const absl::flat_hash_set<std::string>& own) {
  bool ready = true;
  each_variable(body, [&](const Term& variable) {
    if (own.contains(variable.name)) return;
    const auto* known = find(variable.name);
    if (known == nullptr || known->bound) return;
    ready = false;
    if (report) unsafe(variable);
  });
  return ready;
}

/// Goes through the statements again and again and takes each whose variables have values, until all are taken.
bool Codegen::order(const Body& body, Plan& plan) {
  std::vector<const Expr*> waiting;
  for (const auto& expr : body) waiting.push_back(&expr);
  bool progress = true;
  while (!waiting.empty() && progress && !broken_) {
    progress = false;
    std::vector<const Expr*> still;
    for (const auto* expr : waiting) {
      if (attempt(*expr, plan)) {
        progress = true;
        if (&body == traced_) emitted_.push_back(expr);
      } else {
        still.push_back(expr);
      }
      if (broken_) return false;
    }
    waiting = std::move(still);
  }
  if (waiting.empty()) return true;
  // What is said of each is what it lacks when all others have been asked.
  const std::size_t before = unsafe_.size();
  for (const auto* expr : waiting) {
    Plan none;
    const Mark start = mark();
    this->expr(*expr, none);
    undo(start);
  }
  if (unsafe_.size() == before) unsafe_.emplace_back("_", waiting[0]->at);
  broken_ = true;
  return false;
}

void Codegen::forget(const Term& term) {
  hoisted_.erase(&term);
  for (const auto& part : term.parts) forget(part);
  if (term.body) {
    for (const auto& expr : *term.body) forget(expr);
  }
}

void Codegen::forget(const Expr& expr) {
  for (const auto& term : expr.terms) forget(term);
  for (const auto& with : expr.withs) forget(with.value);
  if (expr.body) {
    for (const auto& inner : *expr.body) forget(inner);
  }
}

bool Codegen::attempt(const Expr& one, Plan& plan) {
  const Mark start = mark();
  Plan steps;
  if (expr(one, steps)) {
    for (auto& step : steps) plan.push_back(std::move(step));
    return true;
  }
  undo(start);
  forget(one);  // what was hoisted for it is to be hoisted again
  if (!broken_) unsafe_.resize(start.unsafe);
  return false;
}

bool Codegen::expr(const Expr& expr, Plan& plan) {
  if (!expr.withs.empty()) return with(expr, plan);
  if (expr.negated) return negated(expr, plan);
  return plain(expr, plan);
}

bool Codegen::plain(const Expr& expr, Plan& plan) {
  switch (expr.form) {
    case ExprForm::some:
      return true;
    case ExprForm::some_in:
      return some_in(expr, plan);
    case ExprForm::every:
      return every(expr, plan);
    case ExprForm::unify:
    case ExprForm::assign:
      return unify(expr.terms[0], expr.terms[1], plan, expr.at);
    case ExprForm::term:
      return test(expr.terms[0], plan, expr.at);
  }
  return false;
}

bool Codegen::test(const Term& term, Plan& plan, Position at) {
  if (term.form == TermForm::call) {
    const Callee callee = find_callee(root_, term.parts[0]);
    const bool variadic = callee.builtin != nullptr && callee.builtin->variadic;
    if (callee.found() && !variadic && term.parts.size() == callee.arity() + 2) {  // the older way: the last argument is the result
      auto& call = made_.emplace_back(std::make_unique<Term>(term));
      auto& out = made_.emplace_back(std::make_unique<Term>(call->parts.back()));
      const Term& result = *out;
      Term& function = *made_[made_.size() - 2];
      function.parts.pop_back();
      return unify(result, function, plan, at);
    }
  }
  if (!settle(term, plan)) return false;
  if (term.form == TermForm::call && term.parts.size() == 3 && term.parts[0].is_variable("equal"))
    check_match(term.parts[1], term.parts[2], at);
  Step step;
  step.form = Step::Form::test;
  step.at = at;
  step.expression = value(term);
  if (broken_) return false;
  plan.push_back(std::move(step));
  return true;
}

bool Codegen::negated(const Expr& expr, Plan& plan) {
  bool ready = true;
  for (std::size_t i = 0; i < expr.terms.size(); ++i) {
    const Term& term = expr.terms[i];
    const auto check = [&](auto&& self, const Term& part) -> void {
      if (part.is_variable() && part.name != "input" && part.name != "data") {
        const auto* known = find(part.name);
        if (known != nullptr && !known->bound) {
          unsafe(part);
          ready = false;
        }
      }
      if (is_closure(part)) {
        ready = closure_ready(part, true) && ready;
        return;
      }
      for (std::size_t k = part.form == TermForm::call ? 1 : 0; k < part.parts.size(); ++k) self(self, part.parts[k]);
    };
    check(check, term);
  }
  if (!ready) return false;
  Plan inner;
  if (!plain(expr, inner)) return false;
  Step step;
  step.form = Step::Form::negate;
  step.at = expr.at;
  step.plan = std::make_shared<const Plan>(std::move(inner));
  plan.push_back(std::move(step));
  return true;
}

bool Codegen::some_in(const Expr& expr, Plan& plan) {
  const Term& domain = expr.terms.back();
  if (!settle(domain, plan)) return false;
  const Term& out = expr.terms[expr.terms.size() - 2];
  const Term* key = expr.terms.size() == 3 ? &expr.terms[0] : nullptr;
  for (const Term* term : {key, &out}) {
    if (term == nullptr) continue;
    while (!path_ready(*term)) {
      if (!hoist(*term, plan)) return ground(*term, true) && false;
    }
  }
  Step step;
  step.form = Step::Form::scan;
  step.at = expr.at;
  step.expression = value(domain);
  step.path.emplace_back();
  if (key != nullptr) step.path[0] = pattern(*key);
  step.pattern = pattern(out);
  if (broken_) return false;
  plan.push_back(std::move(step));
  return true;
}

bool Codegen::every(const Expr& expr, Plan& plan) {
  if (!settle(expr.terms.back(), plan)) return false;
  absl::flat_hash_set<std::string> own;
  for (std::size_t i = 0; i + 1 < expr.terms.size(); ++i) own.insert(expr.terms[i].name);
  if (!closure_body_ready(*expr.body, true, own)) return false;
  Step step;
  step.form = Step::Form::every;
  step.at = expr.at;
  step.expression = value(expr.terms.back());
  if (broken_) return false;
  scopes_.emplace_back();
  for (std::size_t i = 0; i + 1 < expr.terms.size(); ++i) {
    declare(expr.terms[i].name);
    step.path.push_back(pattern(expr.terms[i]));
  }
  scopes_.emplace_back();
  declare_all(*expr.body);
  Plan inner;
  const bool ok = order(*expr.body, inner);
  scopes_.pop_back();
  scopes_.pop_back();
  if (!ok) return false;
  step.plan = std::make_shared<const Plan>(std::move(inner));
  plan.push_back(std::move(step));
  return true;
}

bool Codegen::unify(const Term& left, const Term& right, Plan& plan, Position at) {
  std::vector<std::pair<const Term*, const Term*>> pairs;
  bool never = false;
  pair_up(left, right, pairs, never);
  bool progress = true;
  while (!pairs.empty() && progress) {
    progress = false;
    std::vector<std::pair<const Term*, const Term*>> still;
    for (const auto& [l, r] : pairs) {
      if (one_pair(*l, *r, plan, at, false)) {
        progress = true;
      } else {
        still.emplace_back(l, r);
      }
      if (broken_) return false;
    }
    pairs = std::move(still);
  }
  for (const auto& [l, r] : pairs) one_pair(*l, *r, plan, at, true);
  if (!pairs.empty()) return false;
  if (!never) return true;
  const bool left_known = ground(left, true);
  if (!ground(right, true) || !left_known) return false;
  type_error(at, "match error: arrays of different lengths");
  Step step;
  step.form = Step::Form::fail;
  step.at = at;
  plan.push_back(std::move(step));
  return true;
}

bool Codegen::one_pair(const Term& left, const Term& right, Plan& plan, Position at, bool report) {
  // A reference that gives many values hands each straight to the pattern.
  for (const auto& [out, from] : {std::pair(&left, &right), std::pair(&right, &left)}) {
    if (from->form != TermForm::reference || hoisted_.contains(from) || ground(*from)) continue;
    while (!can_scan(*from)) {
      bool some = false;
      for (const auto& part : from->parts) some = hoist(part, plan) || some;
      if (!some) break;
    }
    if (!can_scan(*from) || ground(*from) || !path_ready(*out)) continue;
    const Slot slot = new_slot();
    const bool direct = !has_free(*from->parts.data()) && (out->is_variable() ? has_free(*out) : true);
    bool shares = false;  // a variable in both: the path gives it its value first
    each_variable(*out, [&](const Term& variable) {
      each_variable(*from, [&](const Term& other) { shares = shares || variable.name == other.name; });
    });
    if (direct && !shares) {
      Pattern taken = pattern(*out);
      return scan(*from, std::move(taken), plan) && !broken_;
    }
    Pattern bound;
    bound.form = Pattern::Form::bind;
    bound.slot = slot;
    if (!scan(*from, std::move(bound), plan)) return false;
    hoisted_[from] = slot;
  }
  while (hoist(left, plan) || hoist(right, plan)) {
  }
  const bool left_ground = ground(left);
  check_match(left, right, at);
  const bool right_ground = ground(right);
  Step step;
  step.at = at;
  if (left_ground && right_ground) {
    step.form = Step::Form::test;
    step.expression.form = Expression::Form::compare;
    step.expression.at = at;
    step.expression.parts.push_back(value(left));
    step.expression.parts.push_back(value(right));
  } else if ((right_ground && path_ready(left)) || (left_ground && path_ready(right))) {
    const Term& known = right_ground ? right : left;
    const Term& wanted = right_ground ? left : right;
    step.form = Step::Form::match;
    step.expression = value(known);
    give_type(wanted, type_of(known));
    step.pattern = pattern(wanted);
    if (step.pattern.form == Pattern::Form::bind) {
      step.form = Step::Form::bind;
      step.slot = step.pattern.slot;
    }
  } else {
    if (report) {
      ground(left, true);
      ground(right, true);
    }
    return false;
  }
  if (broken_) return false;
  plan.push_back(std::move(step));
  return true;
}

}  // namespace openshell::policy::rego
