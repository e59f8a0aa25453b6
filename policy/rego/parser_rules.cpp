// Rules: heads, bodies, else.
#include "policy/rego/parser_state.hpp"
#include "policy/text.hpp"

namespace openshell::policy::rego {
namespace {

Term true_term(Position at) {
  Term term;
  term.at = at;
  term.scalar = Value::boolean(true);
  return term;
}

}  // namespace

bool Parser::rules(Module& module) {
  const std::size_t start = at_;
  if (keyword("default") && after().kind == TokenKind::name) return default_rule(module);
  Rule rule;
  rule.at = now().at;
  if (!head(rule)) return false;
  const bool bare = !rule.value && !rule.key;
  bool uses_if = false;
  bool braces = false;
  if (!rule_body(rule, braces, uses_if)) return false;
  if (words_.v1 && rule.has_body && !uses_if) {
    fail_at(rule.at, "`if` keyword is required before rule body");
    return false;
  }
  if (bare && !older_set(rule, uses_if)) return false;
  if (bare && !rule.key && !rule.has_body && !rule.is_function) {
    fail_at(tokens_[start].at, words_.v1 ? "rule must have value assignment and/or body declaration" : "var cannot be used for rule name");
    return false;
  }
  if (!rule.value && !rule.key) rule.value = true_term(rule.at);
  if (keyword("else")) {
    if (rule.is_set) {
      fail("else keyword cannot be used on multi-value rules");
      return false;
    }
    if (!rule.has_body) {
      fail("else keyword cannot be used on rules without a body");
      return false;
    }
    rule.otherwise = otherwise(rule);
    if (!rule.otherwise) return false;
  }
  const bool chained = !rule.otherwise && rule.has_body && braces;
  module.rules.push_back(rule);
  while (chained && now().is("{")) {
    Rule more = rule;
    more.at = now().at;
    more.body.clear();
    if (!rule_body(more, braces, uses_if)) return false;
    module.rules.push_back(std::move(more));
  }
  return true;
}

/// `name[key]` without a value is an element of a set in the older syntax.
bool Parser::older_set(Rule& rule, bool uses_if) {
  if (rule.is_function || rule.name.form != TermForm::reference || uses_if) return true;
  if (words_.v1 ? !older_key_ : rule.name.parts.size() != 2) return true;
  if (words_.v1) {
    fail_at(rule.at, rule.has_body ? "`if` keyword is required before rule body" : "`contains` keyword is required for partial set rules");
    return false;
  }
  rule.is_set = true;
  rule.key = std::move(rule.name.parts.back());
  rule.name.parts.pop_back();
  if (rule.name.parts.size() == 1) {
    Term name = std::move(rule.name.parts[0]);
    rule.name = std::move(name);
  }
  return true;
}

bool Parser::head(Rule& rule) {
  if (now().kind != TokenKind::name || is_reserved(now())) {
    unexpected();
    return false;
  }
  older_key_ = false;
  Term name;
  name.form = TermForm::variable;
  name.at = now().at;
  name.name = now().text;
  next();
  const auto extend = [&](Term part) {
    if (name.form != TermForm::reference) {
      Term whole;
      whole.form = TermForm::reference;
      whole.at = name.at;
      whole.parts.push_back(std::move(name));
      name = std::move(whole);
    }
    name.parts.push_back(std::move(part));
  };
  while (!now().after_space && (now().is(".") || now().is("["))) {
    older_key_ = now().is("[");
    next();
    if (older_key_) {
      auto index = infix(true);
      if (!index || !expect("]")) return false;
      extend(*std::move(index));
      continue;
    }
    if (now().kind != TokenKind::name || now().after_space) {
      fail("expected a name after '.'");
      return false;
    }
    Term part;
    part.at = now().at;
    part.scalar = Value::string(now().text);
    next();
    extend(std::move(part));
  }
  rule.name = std::move(name);
  if (now().is("(") && !now().after_space) {
    rule.is_function = true;
    next();
    if (!take(")") && !list(rule.arguments, ")", std::nullopt)) return false;
  }
  if (keyword("contains")) {
    if (rule.is_function) {
      fail("the contains keyword can only be used with multi-value rule definitions (e.g., p contains <VALUE> { ... })");
      return false;
    }
    next();
    auto key = infix(true);
    if (!key) return false;
    rule.key = *std::move(key);
    rule.is_set = true;
    return true;
  }
  if (now().is(":=") || now().is("=")) {
    rule.assigns = now().is(":=");
    next();
    auto value = infix(true);
    if (!value) return false;
    rule.value = *std::move(value);
  }
  return true;
}

/// `if literal`, `if { body }`, and the older `{ body }`.
bool Parser::rule_body(Rule& rule, bool& braces, bool& uses_if) {
  braces = false;
  if (keyword("if")) {
    next();
    uses_if = true;
    rule.has_body = true;
    if (now().is("{")) {
      const Mark start = mark();
      next();
      auto inner = body("}");
      if (inner && take("}")) {
        const bool goes_on = now().kind == TokenKind::punctuation && now().at.row == before().end_row && !now().is("{") && !now().is(";");
        if (!goes_on) {
          braces = true;
          rule.body = *std::move(inner);
          return true;
        }
      }
      if (limit_) return false;
      const auto why = error_;
      reset(start);
      if (auto expr = literal()) {  // a collection that begins with a brace
        rule.body.push_back(*std::move(expr));
        return true;
      }
      if (why) error_ = why;
      return false;
    }
    auto expr = literal();
    if (!expr) return false;
    rule.body.push_back(*std::move(expr));
    return true;
  }
  if (!now().is("{")) return true;
  rule.has_body = true;
  braces = true;
  next();
  auto inner = body("}");
  if (!inner || !expect("}")) return false;
  rule.body = *std::move(inner);
  return true;
}

std::shared_ptr<const Rule> Parser::otherwise(const Rule& first) {
  if (too_deep()) return nullptr;
  const Level level(*this);
  auto rule = std::make_shared<Rule>();
  rule->at = now().at;
  rule->is_function = first.is_function;
  rule->name = first.name;
  rule->arguments = first.arguments;
  next();
  if (now().is(":=") || now().is("=")) {
    rule->assigns = now().is(":=");
    next();
    auto value = infix(true);
    if (!value) return nullptr;
    rule->value = *std::move(value);
  }
  bool braces = false;
  bool uses_if = false;
  if (!rule_body(*rule, braces, uses_if)) return nullptr;
  if (!rule->value && !rule->has_body) {
    unexpected();
    return nullptr;
  }
  if (words_.v1 && rule->has_body && !uses_if) {
    fail_at(rule->at, "`if` keyword is required before rule body");
    return nullptr;
  }
  if (!rule->value) rule->value = true_term(rule->at);
  if (keyword("else")) {
    rule->otherwise = otherwise(first);
    if (!rule->otherwise) return nullptr;
  }
  return rule;
}

bool Parser::default_rule(Module& module) {
  Rule rule;
  rule.at = now().at;
  rule.is_default = true;
  next();
  if (!head(rule)) return false;
  if (rule.is_set) {
    fail_at(rule.at, "default rules cannot be multi-value");
    return false;
  }
  if (!rule.value) rule.value = true_term(rule.at);
  if (keyword("if") || now().is("{")) {
    unexpected();
    return false;
  }
  for (const auto& argument : rule.arguments) {
    if (!argument.is_variable()) {
      fail_at(argument.at, "default functions may have variables as arguments only");
      return false;
    }
  }
  for (std::size_t i = 0; i < rule.arguments.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (rule.arguments[i].name != "_" && rule.arguments[i].name == rule.arguments[j].name) {
        fail_at(rule.arguments[i].at, "arguments of default functions cannot be repeated");
        return false;
      }
    }
  }
  if (!check_constant(*rule.value)) return false;
  module.rules.push_back(std::move(rule));
  return true;
}

/// The value of a default holds nothing that has to be looked up; a comprehension may look up what it wants.
bool Parser::check_constant(const Term& term) {
  switch (term.form) {
    case TermForm::variable:
    case TermForm::reference:
    case TermForm::call:
    case TermForm::interpolation:
      fail_at(term.at, text::cat("illegal default rule (value cannot contain ",
                                 term.form == TermForm::call ? "call"
                                 : term.is_variable()        ? "var"
                                                             : "ref",
                                 ")"));
      return false;
    case TermForm::array:
    case TermForm::set:
    case TermForm::object:
      for (const auto& part : term.parts) {
        if (!check_constant(part)) return false;
      }
      return true;
    default:
      return true;
  }
}

}  // namespace openshell::policy::rego
