// Terms to expressions and patterns.
#include "policy/rego/codegen.hpp"
#include "policy/rego/resolve.hpp"
#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {
namespace {

bool is_closure(const Term& term) {
  return term.form == TermForm::array_comprehension || term.form == TermForm::set_comprehension ||
         term.form == TermForm::object_comprehension;
}

std::optional<Expression::Comparison> comparison_of(std::string_view name) {
  using C = Expression::Comparison;
  if (name == "equal") return C::equal;
  if (name == "neq") return C::not_equal;
  if (name == "lt") return C::less;
  if (name == "lte") return C::at_most;
  if (name == "gt") return C::greater;
  if (name == "gte") return C::at_least;
  return std::nullopt;
}

Expression slot_of(Slot slot, Position at) {
  Expression made;
  made.form = Expression::Form::slot;
  made.slot = slot;
  made.at = at;
  return made;
}

Expression constant_of(Value value, Position at) {
  Expression made;
  made.constant = std::move(value);
  made.at = at;
  return made;
}

bool all_constant(const std::vector<Expression>& parts) {
  return std::all_of(parts.begin(), parts.end(), [](const Expression& part) { return part.form == Expression::Form::constant; });
}

/// A literal of constants is a constant.
Expression folded(Expression made) {
  if (!all_constant(made.parts)) return made;
  std::vector<Value> items;
  for (const auto& part : made.parts) items.push_back(part.constant);
  switch (made.form) {
    case Expression::Form::array:
      return constant_of(Value::array(std::move(items)), made.at);
    case Expression::Form::set:
      return constant_of(Value::set(std::move(items)), made.at);
    case Expression::Form::object: {
      std::vector<Member> members;
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) members.push_back({items[i], items[i + 1]});
      const std::size_t written = members.size();
      Value object = Value::object(std::move(members));
      if (object.size() != written) return made;  // a key twice: found when it is evaluated
      return constant_of(std::move(object), made.at);
    }
    default:
      return made;
  }
}

}  // namespace

std::string dotted(const Term& term) {
  if (term.is_variable()) return term.name;
  std::string name;
  for (const auto& part : term.parts) {
    if (!name.empty()) name += '.';
    name += part.is_variable() ? std::string_view(part.name) : part.scalar.text();
  }
  return name;
}

Callee find_callee(const Node& root, const Term& function) {
  if (function.is_variable()) return {find_builtin(function.name), nullptr};
  if (function.form != TermForm::reference) return {};
  if (!function.parts[0].is_variable("data")) return {find_builtin(dotted(function)), nullptr};
  const Node* node = &root;
  for (std::size_t i = 1; i < function.parts.size() && node != nullptr; ++i) {
    node = function.parts[i].is_string() ? node->child(function.parts[i].scalar.text()) : nullptr;
  }
  if (node == nullptr || !node->group || node->group->form != RuleGroup::Form::function) return {};
  return {nullptr, node->group.get()};
}

bool Codegen::is_relation(const Term& call) const {
  if (call.form != TermForm::call) return false;
  const Callee callee = find_callee(root_, call.parts[0]);
  return callee.builtin != nullptr && callee.builtin->relation;
}

/// True where a variable outside of closures has no value yet: the term is then a pattern, or waits.
bool Codegen::has_free(const Term& term) const {
  if (term.is_variable()) {
    const auto* variable = find(term.name);
    return variable != nullptr && !variable->bound;
  }
  if (is_closure(term)) return false;
  if (hoisted_.contains(&term)) return false;
  return std::any_of(term.parts.begin() + (term.form == TermForm::call ? 1 : 0), term.parts.end(),
                     [&](const Term& part) { return has_free(part); });
}

bool Codegen::ground(const Term& term, bool report) {
  if (hoisted_.contains(&term)) return true;
  if (term.is_variable()) {
    if (term.name == "input" || term.name == "data") return true;
    const auto* variable = find(term.name);
    if (variable != nullptr && variable->bound) return true;
    if (report) unsafe(term);
    return false;
  }
  if (is_closure(term)) return closure_ready(term, report);
  if (is_relation(term)) {
    if (report) {
      for (std::size_t i = 1; i < term.parts.size(); ++i) ground(term.parts[i], true);
    }
    return false;
  }
  bool all = true;
  for (std::size_t i = term.form == TermForm::call ? 1 : 0; i < term.parts.size(); ++i) {
    if (ground(term.parts[i], report)) continue;
    all = false;
    if (!report) break;
  }
  return all;
}

bool Codegen::settle(const Term& term, Plan& plan) {
  while (!ground(term)) {
    if (!hoist(term, plan)) return ground(term, true);
  }
  return true;
}

/// References with variables that have no value yet become statements of their own, which give them one.
bool Codegen::hoist(const Term& term, Plan& plan) {
  if (term.form == TermForm::scalar || term.is_variable() || is_closure(term) || hoisted_.contains(&term)) return false;
  bool some = false;
  for (std::size_t i = term.form == TermForm::call ? 1 : 0; i < term.parts.size(); ++i) some = hoist(term.parts[i], plan) || some;
  if (is_relation(term)) {
    for (std::size_t i = 1; i < term.parts.size(); ++i) {
      if (!ground(term.parts[i])) return some;
    }
    Step step;
    step.form = Step::Form::relate;
    step.at = term.at;
    step.expression = call(term);
    step.pattern.form = Pattern::Form::bind;
    step.pattern.slot = new_slot();
    hoisted_[&term] = step.pattern.slot;
    plan.push_back(std::move(step));
    return true;
  }
  if (term.form != TermForm::reference || ground(term) || !can_scan(term)) return some;
  Pattern out;
  out.form = Pattern::Form::bind;
  out.slot = new_slot();
  const Slot slot = out.slot;
  if (!scan(term, std::move(out), plan)) return some;
  hoisted_[&term] = slot;
  return true;
}

/// A part of a path: a variable or a pattern of variables gets its values from it; all else must have one.
bool Codegen::path_ready(const Term& part) {
  if (part.is_variable()) return true;
  if (part.form == TermForm::array)
    return std::all_of(part.parts.begin(), part.parts.end(), [&](const Term& item) { return path_ready(item); });
  if (part.form == TermForm::object) {
    for (std::size_t i = 0; i < part.parts.size(); ++i) {
      if (i % 2 == 0 ? !ground(part.parts[i]) : !path_ready(part.parts[i])) return false;
    }
    return true;
  }
  return ground(part);
}

bool Codegen::can_scan(const Term& reference) {
  if (!ground(reference.parts[0])) return false;
  return std::all_of(reference.parts.begin() + 1, reference.parts.end(), [&](const Term& part) { return path_ready(part); });
}

bool Codegen::scan(const Term& term, Pattern out, Plan& plan) {
  asks(term);
  Step step;
  step.form = Step::Form::scan;
  step.at = term.at;
  std::size_t used = 1;
  if (term.parts[0].is_variable("data") && find("data") == nullptr) {
    step.expression = data(term, used);
  } else {
    step.expression = value(term.parts[0]);
  }
  for (std::size_t i = used; i < term.parts.size(); ++i) step.path.push_back(pattern(term.parts[i]));
  step.pattern = std::move(out);
  plan.push_back(std::move(step));
  return true;
}

/// Variables in it that have no value yet get theirs from what is matched.
Pattern Codegen::pattern(const Term& term) {
  Pattern made;
  if (term.is_variable()) {
    if (auto* variable = find(term.name); variable != nullptr && !variable->bound) {
      bind(*variable);
      made.form = Pattern::Form::bind;
      made.slot = variable->slot;
      return made;
    }
  }
  if (!has_free(term) || (term.form != TermForm::array && term.form != TermForm::object)) {
    made.form = Pattern::Form::equal;
    made.expression = value(term);
    return made;
  }
  made.form = term.form == TermForm::array ? Pattern::Form::array : Pattern::Form::object;
  if (made.form == Pattern::Form::array) {
    for (const auto& part : term.parts) made.items.push_back(pattern(part));
  } else {
    for (std::size_t i = 0; i + 1 < term.parts.size(); i += 2) {
      made.keys.push_back(value(term.parts[i]));
      made.items.push_back(pattern(term.parts[i + 1]));
    }
  }
  return made;
}

/// Precondition: ground(term).
Expression Codegen::value(const Term& term) {
  if (const auto found = hoisted_.find(&term); found != hoisted_.end()) return slot_of(found->second, term.at);
  switch (term.form) {
    case TermForm::scalar:
      return constant_of(term.scalar, term.at);
    case TermForm::variable: {
      if (const auto* variable = find(term.name)) return slot_of(variable->slot, term.at);
      Expression made;
      made.form = term.name == "input" ? Expression::Form::input : Expression::Form::data;
      made.node = &root_;
      made.at = term.at;
      if (term.name == "data") asks_below(root_);
      return made;
    }
    case TermForm::reference:
      return reference(term);
    case TermForm::call:
      return call(term);
    case TermForm::array_comprehension:
    case TermForm::set_comprehension:
    case TermForm::object_comprehension:
      return comprehension(term);
    case TermForm::interpolation:
      return printed(term);
    case TermForm::array:
    case TermForm::set:
    case TermForm::object:
      break;
  }
  Expression made;
  made.at = term.at;
  made.form = term.form == TermForm::array ? Expression::Form::array
              : term.form == TermForm::set ? Expression::Form::set
                                           : Expression::Form::object;
  for (const auto& part : term.parts) made.parts.push_back(value(part));
  return folded(std::move(made));
}

Expression Codegen::reference(const Term& term) {
  asks(term);
  check_reference(term);
  std::size_t used = 1;
  Expression made;
  made.at = term.at;
  if (term.parts[0].is_variable("data") && find("data") == nullptr) {
    made = data(term, used);
  } else {
    made.form = Expression::Form::lookup;
    made.parts.push_back(value(term.parts[0]));
  }
  for (std::size_t i = used; i < term.parts.size(); ++i) made.parts.push_back(value(term.parts[i]));
  return made;
}

/// Walks the fixed beginning of a path down the tree of rules; `used` becomes the number of parts that are done with.
Expression Codegen::data(const Term& term, std::size_t& used) {
  Expression made;
  made.form = Expression::Form::data;
  made.at = term.at;
  const Node* node = &root_;
  std::size_t i = 1;
  while (i < term.parts.size() && !node->group && term.parts[i].is_string()) {
    const Node* next = node->child(term.parts[i].scalar.text());
    if (next == nullptr) break;
    node = next;
    ++i;
  }
  used = i;
  made.node = node;
  made.group = node->group.get();
  made.depth = static_cast<std::uint32_t>(i - 1);
  if (made.group != nullptr && made.group->form == RuleGroup::Form::function)
    type_error(term.at, text::cat("function ", made.group->name, " used as reference, not called"));
  return made;
}

void Codegen::asks_below(const Node& node) {
  if (node.group) asked.insert(node.group.get());
  for (const auto& [key, child] : node.children) asks_below(*child);
}

void Codegen::asks(const Term& term) {
  if (!term.parts[0].is_variable("data") || find("data") != nullptr) return;
  std::vector<const Node*> level = {&root_};
  for (std::size_t i = 1; i < term.parts.size() && !level.empty(); ++i) {
    std::vector<const Node*> next;
    for (const Node* node : level) {
      if (node->group) asked.insert(node->group.get());
      if (term.parts[i].form == TermForm::scalar) {
        const Node* child = term.parts[i].is_string() ? node->child(term.parts[i].scalar.text()) : nullptr;
        if (child != nullptr) next.push_back(child);
      } else {
        for (const auto& [key, child] : node->children) next.push_back(child.get());
      }
    }
    level = std::move(next);
  }
  for (const Node* node : level) asks_below(*node);
}

Expression Codegen::call(const Term& term) {
  Expression made;
  made.at = term.at;
  const Callee callee = find_callee(root_, term.parts[0]);
  if (callee.builtin != nullptr && callee.builtin->name == "print") return printed(term);
  made.builtin = callee.builtin;
  made.group = callee.group;
  made.form = callee.builtin != nullptr ? Expression::Form::builtin : Expression::Form::function;
  if (callee.group != nullptr) asked.insert(callee.group);
  if (callee.builtin != nullptr) check_arguments(term, *callee.builtin);
  if (callee.builtin != nullptr) {
    const auto name = callee.builtin->name;
    if (const auto how = comparison_of(name)) {
      made.form = Expression::Form::compare;
      made.comparison = *how;
    } else if (name == "plus") {
      made.form = Expression::Form::add;
    } else if (name == "minus") {
      made.form = Expression::Form::subtract;
    } else if (name == "internal.member_2") {
      made.form = Expression::Form::member;
    } else if (name == "internal.member_3") {
      made.form = Expression::Form::member_at;
    }
  }
  for (std::size_t i = 1; i < term.parts.size(); ++i) made.parts.push_back(value(term.parts[i]));
  return made;
}

/// What is printed need not be defined: each argument is the set of what it gives.
Expression Codegen::printed(const Term& term) {
  Expression made;
  made.at = term.at;
  made.form = term.form == TermForm::call ? Expression::Form::print : Expression::Form::interpolation;
  for (std::size_t i = term.form == TermForm::call ? 1 : 0; i < term.parts.size(); ++i) {
    const Term& part = term.parts[i];
    if (term.form == TermForm::interpolation && part.form == TermForm::scalar) {
      made.parts.push_back(constant_of(part.scalar, part.at));
      continue;
    }
    Term variable;
    variable.form = TermForm::variable;
    variable.at = part.at;
    variable.name = text::cat("$print#", made_.size());
    Expr equal;
    equal.form = ExprForm::unify;
    equal.at = part.at;
    equal.terms = {variable, term.form == TermForm::interpolation ? part.parts[0] : part};
    auto set = std::make_unique<Term>();
    set->form = TermForm::set_comprehension;
    set->at = part.at;
    set->parts = {variable};
    set->body = std::make_shared<const Body>(Body{equal});
    made.parts.push_back(comprehension(*set));
    made_.push_back(std::move(set));
  }
  return made;
}

Expression Codegen::comprehension(const Term& term) {
  Expression made;
  made.at = term.at;
  made.form = term.form == TermForm::array_comprehension ? Expression::Form::array_comprehension
              : term.form == TermForm::set_comprehension ? Expression::Form::set_comprehension
                                                         : Expression::Form::object_comprehension;
  scopes_.emplace_back();
  declare_all(*term.body);
  for (const auto& part : term.parts) declare_all(part);
  Plan plan;
  bool ok = order(*term.body, plan);
  for (const auto& part : term.parts) ok = ok && settle(part, plan);
  if (ok) {
    for (const auto& part : term.parts) made.parts.push_back(value(part));
    const Type item = type_of(term.parts[0]);
    comprehended_.insert_or_assign(&term, term.form == TermForm::array_comprehension ? types::array_of(item)
                                          : term.form == TermForm::set_comprehension ? types::set_of(item)
                                                                                     : types::object_of(item, type_of(term.parts[1])));
  } else {
    broken_ = true;
  }
  scopes_.pop_back();
  made.plan = std::make_shared<const Plan>(std::move(plan));
  return made;
}

}  // namespace openshell::policy::rego
