#include "policy/rego/resolve.hpp"

#include "policy/text.hpp"

namespace openshell::policy::rego {

using openshell::policy::text::cat;

std::string_view written_name(std::string_view name) { return name.substr(0, name.find('#')); }

void Resolver::error(Position at, std::string message) { errors_.push_back({std::string(code::kCompile), std::move(message), file_, at}); }

const std::string* Resolver::find_local(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->names.find(name);
    if (found != scope->names.end() && found->second.first != Seen::used) return &found->second.second;
  }
  return nullptr;
}

const std::vector<std::string>* Resolver::find_global(const std::string& name) const {
  for (const auto& scope : scopes_) {
    if (scope.later.contains(name)) return nullptr;
  }
  const auto found = globals_.paths.find(name);
  return found == globals_.paths.end() ? nullptr : &found->second;
}

Term Resolver::global(const std::vector<std::string>& path, Position at) const {
  Term root;
  root.form = TermForm::variable;
  root.at = at;
  root.name = path[0];
  if (path.size() == 1) return root;
  Term made;
  made.form = TermForm::reference;
  made.at = at;
  made.parts.push_back(std::move(root));
  for (std::size_t i = 1; i < path.size(); ++i) {
    Term part;
    part.at = at;
    part.scalar = Value::string(path[i]);
    made.parts.push_back(std::move(part));
  }
  return made;
}

Term Resolver::variable(const Term& term) {
  Term made = term;
  if (term.name == "_") {
    made.name = cat("_#", ++count_);
    return made;
  }
  if (term.name == "input" || term.name == "data") {
    if (const auto* local = find_local(term.name)) made.name = *local;
    return made;
  }
  if (const auto* local = find_local(term.name)) {
    made.name = *local;
    used_.insert(made.name);
    return made;
  }
  if (const auto* path = find_global(term.name)) return global(*path, term.at);
  scopes_.back().names.try_emplace(term.name, Seen::used, term.name);
  return made;
}

/// A variable that begins to exist here.
Term Resolver::declare(const Term& term, Seen how) {
  Term made = term;
  if (term.name == "_") return variable(term);
  if (strict_ && how != Seen::declared && (term.name == "input" || term.name == "data")) {
    error(term.at, cat("variables must not shadow ", term.name, " (use a different variable name)"));
  }
  auto& names = scopes_.back().names;
  if (const auto found = names.find(term.name); found != names.end()) {
    switch (found->second.first) {
      case Seen::used:
        error(term.at, cat("var ", term.name, " referenced above"));
        break;
      case Seen::assigned:
        error(term.at, cat("var ", term.name, " assigned above"));
        break;
      case Seen::declared:
        error(term.at, cat("var ", term.name, " declared above"));
        break;
      case Seen::argument:
        error(term.at, cat("arg ", term.name, " redeclared"));
        break;
    }
  }
  made.name = cat(term.name, "#", ++count_);
  names.insert_or_assign(term.name, std::pair(how, made.name));
  return made;
}

/// The left side of an assignment, and what stands before `in`: its variables are new.
Term Resolver::pattern(const Term& term, Seen how) {
  switch (term.form) {
    case TermForm::variable:
      return declare(term, how);
    case TermForm::array: {
      Term made = term;
      for (auto& part : made.parts) part = pattern(part, how);
      return made;
    }
    case TermForm::object: {
      Term made = term;
      for (std::size_t i = 0; i < made.parts.size(); ++i) {
        made.parts[i] = i % 2 == 0 ? this->term(made.parts[i]) : pattern(made.parts[i], how);
      }
      return made;
    }
    case TermForm::scalar:
      if (how == Seen::assigned) error(term.at, cat("cannot assign to ", kind_name(term.scalar.kind())));
      return term;
    default:
      if (how == Seen::assigned) {
        const char* what = term.form == TermForm::reference ? "ref"
                           : term.form == TermForm::call    ? "call"
                           : term.form == TermForm::set     ? "set"
                                                            : "comprehension";
        error(term.at, cat("cannot assign to ", what));
      }
      return this->term(term);
  }
}

Term Resolver::reference(const Term& term) {
  Term made = term;
  Term head = this->term(term.parts[0]);
  std::vector<Term> path;
  for (std::size_t i = 1; i < term.parts.size(); ++i) path.push_back(this->term(term.parts[i]));
  if (head.form == TermForm::reference) {
    made.parts = std::move(head.parts);
  } else {
    made.parts.clear();
    made.parts.push_back(std::move(head));
  }
  for (auto& part : path) made.parts.push_back(std::move(part));
  return made;
}

/// The name of a function is looked up apart: a variable of the same name does not hide a built-in.
Term Resolver::call(const Term& term) {
  Term made = term;
  Term& function = made.parts[0];
  const std::string& name = function.is_variable() ? function.name : function.parts[0].name;
  if (const auto* path = globals_.paths.contains(name) && find_local(name) == nullptr ? find_global(name) : nullptr) {
    Term root = global(*path, function.at);
    if (function.is_variable()) {
      function = std::move(root);
    } else {
      Term whole = root;
      if (whole.form != TermForm::reference) {
        whole = Term{};
        whole.form = TermForm::reference;
        whole.at = function.at;
        whole.parts.push_back(std::move(root));
      }
      for (std::size_t i = 1; i < function.parts.size(); ++i) whole.parts.push_back(function.parts[i]);
      function = std::move(whole);
    }
  }
  for (std::size_t i = 1; i < made.parts.size(); ++i) made.parts[i] = this->term(made.parts[i]);
  return made;
}

Term Resolver::comprehension(const Term& term) {
  Term made = term;
  scopes_.emplace_back();
  collect_later(*term.body);
  made.body = std::make_shared<const Body>(body(*term.body));
  for (auto& part : made.parts) part = this->term(part);
  scopes_.pop_back();
  return made;
}

Term Resolver::term(const Term& term) {
  switch (term.form) {
    case TermForm::scalar:
      return term;
    case TermForm::variable:
      return variable(term);
    case TermForm::reference:
      return reference(term);
    case TermForm::call:
      return call(term);
    case TermForm::interpolation:
      for (const auto& part : term.parts) {
        if (part.form == TermForm::array) check_wildcards(part);
      }
      break;
    case TermForm::array_comprehension:
    case TermForm::set_comprehension:
    case TermForm::object_comprehension:
      return comprehension(term);
    default:
      break;
  }
  Term made = term;
  for (auto& part : made.parts) part = this->term(part);
  return made;
}

/// A hole of a string has one value: nothing in it may stand for many.
void Resolver::check_wildcards(const Term& term) {
  if (term.is_variable("_")) error(term.at, "var _ is undeclared");
  for (const auto& part : term.parts) check_wildcards(part);
}

/// What `with` replaces: a document or a function; no variable is meant.
Term Resolver::target(const Term& term) {
  const std::string& name = term.is_variable()                                                ? term.name
                            : term.form == TermForm::reference && term.parts[0].is_variable() ? term.parts[0].name
                                                                                              : "";
  if (name == "input" || name == "data" || !globals_.paths.contains(name)) return term;
  Term made = global(globals_.paths.at(name), term.at);
  if (term.form != TermForm::reference) return made;
  if (made.form != TermForm::reference) {
    Term whole = term;
    whole.parts[0] = std::move(made);
    return whole;
  }
  for (std::size_t i = 1; i < term.parts.size(); ++i) made.parts.push_back(term.parts[i]);
  return made;
}

namespace {

void collect_pattern(const Term& term, absl::flat_hash_set<std::string>& names) {
  if (term.is_variable()) names.insert(term.name);
  if (term.form != TermForm::array && term.form != TermForm::object) return;
  for (std::size_t i = 0; i < term.parts.size(); ++i) {
    if (term.form == TermForm::array || i % 2 == 1) collect_pattern(term.parts[i], names);
  }
}

}  // namespace

void Resolver::collect_later(const Body& body) {
  auto& names = scopes_.back().later;
  for (const auto& expr : body) {
    if (expr.form == ExprForm::assign) collect_pattern(expr.terms[0], names);
    if (expr.form == ExprForm::some) {
      for (const auto& variable : expr.terms) names.insert(variable.name);
    }
    if (expr.form == ExprForm::some_in) {
      for (std::size_t i = 0; i + 1 < expr.terms.size(); ++i) collect_pattern(expr.terms[i], names);
    }
  }
}

Expr Resolver::expr(const Expr& expr) {
  Expr made = expr;
  for (auto& with : made.withs) {
    with.target = target(with.target);
    with.value = term(with.value);
  }
  switch (expr.form) {
    case ExprForm::term:
      made.terms[0] = term(expr.terms[0]);
      break;
    case ExprForm::unify:
      made.terms[0] = term(expr.terms[0]);
      made.terms[1] = term(expr.terms[1]);
      break;
    case ExprForm::assign:
      made.terms[1] = term(expr.terms[1]);
      made.terms[0] = pattern(expr.terms[0], Seen::assigned);
      break;
    case ExprForm::some:
      for (auto& variable : made.terms) variable = declare(variable, Seen::declared);
      break;
    case ExprForm::some_in:
      made.terms.back() = term(expr.terms.back());
      for (std::size_t i = 0; i + 1 < made.terms.size(); ++i) made.terms[i] = pattern(expr.terms[i], Seen::declared);
      break;
    case ExprForm::every: {
      made.terms.back() = term(expr.terms.back());
      scopes_.emplace_back();
      for (std::size_t i = 0; i + 1 < made.terms.size(); ++i) {
        scopes_.back().later.insert(expr.terms[i].name);
        made.terms[i] = declare(expr.terms[i], Seen::declared);
      }
      scopes_.emplace_back();
      collect_later(*expr.body);
      made.body = std::make_shared<const Body>(body(*expr.body));
      scopes_.pop_back();
      scopes_.pop_back();
      for (std::size_t i = 0; i + 1 < made.terms.size(); ++i) check_used(made.terms[i]);
      break;
    }
  }
  return made;
}

/// What `some` and `every` declare has to be used.
void Resolver::check_used(const Term& variable) {
  if (!variable.name.starts_with("_#") && !used_.contains(variable.name))
    error(variable.at, cat("declared var ", written_name(variable.name), " unused"));
}

Body Resolver::body(const Body& body) {
  Body made;
  for (const auto& one : body) {
    made.push_back(expr(one));
    if (one.form != ExprForm::some) continue;
    for (const auto& variable : made.back().terms) declared_.push_back(variable);
  }
  return made;
}

Body Resolver::query(const Body& query) {
  scopes_.emplace_back();
  collect_later(query);
  Body made = body(query);
  scopes_.clear();
  for (const auto& variable : declared_) check_used(variable);
  return made;
}

Rule Resolver::rule(const Rule& rule) {
  Rule made = rule;
  scopes_.clear();
  scopes_.emplace_back();
  // Variables of the arguments may stand there more than once, and have their own scope: the body may not declare them again.
  const auto argument = [&](auto&& self, const Term& term) -> Term {
    if (term.is_variable()) {
      if (term.name == "_") return variable(term);
      auto& names = scopes_.back().names;
      if (const auto found = names.find(term.name); found != names.end()) {
        Term same = term;
        same.name = found->second.second;
        return same;
      }
      scopes_.back().later.insert(term.name);
      return declare(term, Seen::argument);
    }
    if (term.form == TermForm::array || term.form == TermForm::object || term.form == TermForm::set) {
      Term whole = term;
      for (auto& part : whole.parts) part = self(self, part);
      return whole;
    }
    return this->term(term);
  };
  for (auto& one : made.arguments) one = argument(argument, one);
  collect_later(rule.body);
  made.body = body(rule.body);
  if (made.key) made.key = term(*rule.key);
  if (made.value) made.value = term(*rule.value);
  if (made.name.form == TermForm::reference) {
    for (std::size_t i = 1; i < made.name.parts.size(); ++i) made.name.parts[i] = term(rule.name.parts[i]);
  }
  scopes_.clear();
  for (const auto& variable : declared_) check_used(variable);
  declared_.clear();
  if (rule.otherwise) made.otherwise = std::make_shared<const Rule>(this->rule(*rule.otherwise));
  return made;
}

}  // namespace openshell::policy::rego
