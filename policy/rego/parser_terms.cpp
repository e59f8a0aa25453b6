// Terms: literals, references, calls, operators, comprehensions.
#include "policy/rego/number.hpp"
#include "policy/rego/parser_state.hpp"
#include "policy/text.hpp"

#include <array>

namespace openshell::policy::rego {
namespace {

struct Operator {
  std::string_view mark;
  std::string_view function;
};

/// From the weakest to the strongest; `in` is weaker than all of them.
constexpr std::array<std::array<Operator, 6>, 5> kLevels = {{
    {{{"==", "equal"}, {"!=", "neq"}, {"<", "lt"}, {"<=", "lte"}, {">", "gt"}, {">=", "gte"}}},
    {{{"|", "or"}}},
    {{{"&", "and"}}},
    {{{"+", "plus"}, {"-", "minus"}}},
    {{{"*", "mul"}, {"/", "div"}, {"%", "rem"}}},
}};

Term made(TermForm form, Position at) {
  Term term;
  term.form = form;
  term.at = at;
  return term;
}

Term variable(std::string name, Position at) {
  Term term = made(TermForm::variable, at);
  term.name = std::move(name);
  return term;
}

Term scalar(Value value, Position at) {
  Term term = made(TermForm::scalar, at);
  term.scalar = std::move(value);
  return term;
}

Term call(std::string_view function, std::vector<Term> arguments, Position at) {
  Term term = made(TermForm::call, at);
  term.parts.push_back(variable(std::string(function), at));
  for (auto& argument : arguments) term.parts.push_back(std::move(argument));
  return term;
}

}  // namespace

/// `pair`: a comma may belong to `key, value in collection`.
std::optional<Term> Parser::infix(bool pair, std::optional<Term> left) {
  if (too_deep()) return std::nullopt;
  const Level level(*this);
  left = binary(0, std::move(left));
  if (!left) return std::nullopt;
  if (pair && words_.in && now().is(",")) {
    const Mark start = mark();
    next();
    auto middle = binary(0, std::nullopt);
    if (middle && keyword("in")) {
      next();
      auto right = binary(0, std::nullopt);
      if (!right) return std::nullopt;
      const Position at = left->at;
      left = call("internal.member_3", {*std::move(left), *std::move(middle), *std::move(right)}, at);
    } else {
      if (limit_) return std::nullopt;
      reset(start);
    }
  }
  while (keyword("in")) {
    next();
    auto right = binary(0, std::nullopt);
    if (!right) return std::nullopt;
    const Position at = left->at;
    left = call("internal.member_2", {*std::move(left), *std::move(right)}, at);
  }
  return left;
}

std::optional<Term> Parser::binary(int level, std::optional<Term> left) {
  if (level == static_cast<int>(kLevels.size())) return left ? std::move(left) : primary();
  left = binary(level + 1, std::move(left));
  while (left) {
    std::string_view function;
    for (const auto& [mark, name] : kLevels[static_cast<std::size_t>(level)]) {
      if (!mark.empty() && now().is(mark)) function = name;
    }
    if (function.empty()) break;
    next();
    auto right = binary(level + 1, std::nullopt);
    if (!right) return std::nullopt;
    const Position at = left->at;
    left = call(function, {*std::move(left), *std::move(right)}, at);
  }
  return left;
}

std::optional<Term> Parser::primary() {
  if (too_deep()) return std::nullopt;
  const Level level(*this);
  auto term = simple();
  if (!term) return term;
  if (term->form == TermForm::scalar) {
    if (term->is_string() && !now().after_space && (now().is("[") || now().is("."))) return fail("illegal ref (head cannot be string)");
    return term;
  }
  return continued(*std::move(term));
}

std::optional<Term> Parser::simple() {
  const Token& token = now();
  const Position at = token.at;
  switch (token.kind) {
    case TokenKind::name:
      return named();
    case TokenKind::number: {
      Value value = Number::parse(token.text[0] == '.' ? text::cat("0", token.text) : token.text);
      if (!value.is_defined()) return fail("illegal number format");
      next();
      return scalar(std::move(value), at);
    }
    case TokenKind::string: {
      Term term = scalar(Value::string(token.text), at);
      next();
      return term;
    }
    case TokenKind::pattern:
      return pattern();
    case TokenKind::punctuation:
      if (token.is("[")) return bracketed();
      if (token.is("{")) return braced();
      if (token.is("-")) return negative_number();
      if (token.is("(")) {
        next();
        auto inner = infix(true);
        if (!inner || !expect(")")) return std::nullopt;
        return inner;
      }
      break;
    default:
      break;
  }
  return unexpected();
}

std::optional<Term> Parser::negative_number() {
  const Position at = now().at;
  next();
  if (now().kind != TokenKind::number) return unexpected();
  Value value = Number::parse(text::cat("-", now().text[0] == '.' ? "0" : "", now().text));
  next();
  return scalar(std::move(value), at);
}

std::optional<Term> Parser::named() {
  const Token& token = now();
  const Position at = token.at;
  if (token.text == "true" || token.text == "false" || token.text == "null") {
    Value value = token.text == "null" ? Value::null() : Value::boolean(token.text == "true");
    next();
    return scalar(std::move(value), at);
  }
  const bool call_of_contains = token.text == "contains" && !after().after_space && (after().is("(") || after().is("."));
  if (is_reserved(token) && !call_of_contains) return unexpected();
  if (token.text == "set" && after().is("(") && !after().after_space && after(2).is(")")) {
    next();
    next();
    next();
    return made(TermForm::set, at);
  }
  Term term = variable(token.text, at);
  next();
  return term;
}

std::optional<Term> Parser::pattern() {
  Term term = made(TermForm::interpolation, now().at);
  for (const auto& piece : now().pieces) {
    if (!piece.hole) {
      term.parts.push_back(scalar(Value::string(piece.text), piece.at));
      continue;
    }
    Parser inner(tokenize(piece.text, piece.at), file_, syntax_);
    inner.words_ = words_;
    inner.depth_ = depth_;
    auto part = inner.infix(true);
    if (part && inner.now().kind != TokenKind::end) part = inner.unexpected();
    if (!part) {
      error_ = inner.error_;
      limit_ = inner.limit_;
      return std::nullopt;
    }
    // A hole that holds no value shows as such, so it is kept apart from the text even where it is a literal.
    Term hole = made(TermForm::array, piece.at);
    hole.parts.push_back(*std::move(part));
    term.parts.push_back(std::move(hole));
  }
  next();
  return term;
}

std::optional<Term> Parser::comprehension(Term term, std::string_view close) {
  next();
  auto inner = body(close);
  if (!inner || !expect(close)) return std::nullopt;
  term.body = std::make_shared<const Body>(*std::move(inner));
  return term;
}

std::optional<Term> Parser::bracketed() {
  const std::size_t start = at_;
  Term term = made(TermForm::array, now().at);
  next();
  if (take("]")) return term;
  auto first = primary();
  if (!first) return std::nullopt;
  if (now().is("|") && !no_comprehension_.contains(start)) {
    const Mark here = mark();
    Term comprehended = made(TermForm::array_comprehension, term.at);
    comprehended.parts.push_back(*first);
    if (auto found = comprehension(std::move(comprehended), "]")) return found;
    if (limit_) return std::nullopt;
    const auto why = error_;
    no_comprehension_.insert(start);
    reset(here);
    if (list(term.parts, "]", std::move(first))) return term;
    error_ = why;
    return std::nullopt;
  }
  if (!list(term.parts, "]", std::move(first))) return std::nullopt;
  return term;
}

std::optional<Term> Parser::braced() {
  const std::size_t start = at_;
  const Position at = now().at;
  next();
  if (take("}")) return made(TermForm::object, at);
  auto first = primary();
  if (!first) return std::nullopt;
  if (now().is("|") && !no_comprehension_.contains(start)) {
    const Mark here = mark();
    Term comprehended = made(TermForm::set_comprehension, at);
    comprehended.parts.push_back(*first);
    if (auto found = comprehension(std::move(comprehended), "}")) return found;
    if (limit_) return std::nullopt;
    const auto why = error_;
    no_comprehension_.insert(start);
    reset(here);
    Term term = made(TermForm::set, at);
    if (list(term.parts, "}", std::move(first))) return term;
    error_ = why;
    return std::nullopt;
  }
  first = infix(false, std::move(first));
  if (!first) return std::nullopt;
  if (!now().is(":")) {
    Term term = made(TermForm::set, at);
    if (!list(term.parts, "}", std::move(first))) return std::nullopt;
    return term;
  }
  next();
  auto value = primary();
  if (!value) return std::nullopt;
  if (now().is("|")) {
    const Mark here = mark();
    Term comprehended = made(TermForm::object_comprehension, at);
    comprehended.parts.push_back(*first);
    comprehended.parts.push_back(*value);
    if (auto found = comprehension(std::move(comprehended), "}")) return found;
    if (limit_) return std::nullopt;
    const auto why = error_;
    reset(here);
    if (auto found = object_rest(made(TermForm::object, at), *std::move(first), std::move(value))) return found;
    error_ = why;
    return std::nullopt;
  }
  return object_rest(made(TermForm::object, at), *std::move(first), std::move(value));
}

std::optional<Term> Parser::object_rest(Term term, Term key, std::optional<Term> value) {
  while (true) {
    value = infix(false, std::move(value));
    if (!value) return std::nullopt;
    term.parts.push_back(std::move(key));
    term.parts.push_back(*std::move(value));
    if (!take(",")) break;
    if (now().is("}")) break;
    auto next_key = infix(false);
    if (!next_key || !expect(":")) return std::nullopt;
    key = *std::move(next_key);
    value = std::nullopt;
  }
  if (!expect("}")) return std::nullopt;
  return term;
}

/// Items up to `close`; a comma may stand before it. `first` is the beginning of the first item where it was read already.
bool Parser::list(std::vector<Term>& items, std::string_view close, std::optional<Term> first) {
  while (true) {
    auto item = infix(false, std::move(first));
    first = std::nullopt;
    if (!item) return false;
    items.push_back(*std::move(item));
    if (take(",")) {
      if (take(close)) return true;
      continue;
    }
    return expect(close);
  }
}

/// What may follow a term without a space: `.name`, `[term]`, `(arguments)`.
std::optional<Term> Parser::continued(Term head) {
  Term term = std::move(head);
  const auto reference = [&] {
    if (term.form == TermForm::reference) return;
    Term whole = made(TermForm::reference, term.at);
    whole.parts.push_back(std::move(term));
    term = std::move(whole);
  };
  while (!now().after_space) {
    if (now().is(".")) {
      next();
      if (now().kind != TokenKind::name || now().after_space) return fail("expected a name after '.'");
      reference();
      term.parts.push_back(scalar(Value::string(now().text), now().at));
      next();
    } else if (now().is("[")) {
      next();
      auto index = infix(true);
      if (!index || !expect("]")) return std::nullopt;
      reference();
      term.parts.push_back(*std::move(index));
    } else if (now().is("(")) {
      auto result = called(std::move(term));
      if (!result) return std::nullopt;
      term = *std::move(result);
    } else {
      break;
    }
  }
  return term;
}

std::optional<Term> Parser::called(Term function) {
  bool named = function.is_variable();
  if (function.form == TermForm::reference) {
    named = function.parts[0].is_variable();
    for (std::size_t i = 1; i < function.parts.size(); ++i) named = named && function.parts[i].is_string();
  }
  if (!named) return unexpected();
  Term term = made(TermForm::call, function.at);
  term.parts.push_back(std::move(function));
  next();
  if (take(")")) return term;
  if (!list(term.parts, ")", std::nullopt)) return std::nullopt;
  return term;
}

}  // namespace openshell::policy::rego
