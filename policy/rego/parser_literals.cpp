// Literals of bodies, and queries.
#include "policy/rego/parser_state.hpp"
#include "policy/text.hpp"

namespace openshell::policy::rego {

std::optional<Body> Parser::body(std::string_view close) {
  if (too_deep()) return std::nullopt;
  const Level level(*this);
  Body made;
  const auto at_end = [&] { return close.empty() ? now().kind == TokenKind::end : now().is(close); };
  while (true) {
    auto expr = literal();
    if (!expr) return std::nullopt;
    made.push_back(*std::move(expr));
    if (at_end()) return made;
    if (take(";")) continue;
    if (!close.empty() && now().at.row == before().end_row) return unexpected();
  }
}

std::optional<Expr> Parser::literal() {
  const Position at = now().at;
  const std::size_t begin = now().begin;
  bool negated = false;
  if (keyword("not")) {
    next();
    negated = true;
  }
  std::optional<Expr> expr;
  if (keyword("some")) {
    if (negated) return unexpected();
    expr = some();
  } else if (keyword("every")) {
    if (negated) return unexpected();
    expr = every();
  } else {
    expr = expression();
  }
  if (!expr) return std::nullopt;
  expr->negated = negated;
  expr->at = at;
  if (!withs(*expr)) return std::nullopt;
  expr->begin = begin;
  expr->end = before().end;
  return expr;
}

std::optional<Expr> Parser::some() {
  next();
  Expr expr;
  expr.form = ExprForm::some;
  while (true) {
    auto term = binary(0, std::nullopt);
    if (!term) return std::nullopt;
    expr.terms.push_back(*std::move(term));
    if (!take(",")) break;
  }
  if (keyword("in")) {
    next();
    if (expr.terms.size() > 2) return fail("some: at most a key and a value may stand before 'in'");
    auto domain = binary(0, std::nullopt);
    if (!domain) return std::nullopt;
    expr.form = ExprForm::some_in;
    expr.terms.push_back(*std::move(domain));
    return expr;
  }
  for (const auto& term : expr.terms) {
    if (!term.is_variable()) return fail_at(term.at, "some: expected a variable");
  }
  return expr;
}

std::optional<Expr> Parser::every() {
  next();
  Expr expr;
  expr.form = ExprForm::every;
  auto first = binary(0, std::nullopt);
  if (!first) return std::nullopt;
  expr.terms.push_back(*std::move(first));
  if (take(",")) {
    auto second = binary(0, std::nullopt);
    if (!second) return std::nullopt;
    expr.terms.push_back(*std::move(second));
  }
  for (const auto& term : expr.terms) {
    if (!term.is_variable()) return fail_at(term.at, "every: expected a variable");
  }
  if (!keyword("in")) return fail("expected 'x[, y] in xs { ... }' after 'every'");
  next();
  auto domain = binary(0, std::nullopt);
  if (!domain) return std::nullopt;
  expr.terms.push_back(*std::move(domain));
  if (!expect("{")) return std::nullopt;
  auto inner = body("}");
  if (!inner || !expect("}")) return std::nullopt;
  expr.body = std::make_shared<const Body>(*std::move(inner));
  return expr;
}

std::optional<Expr> Parser::expression() {
  Expr expr;
  auto left = infix(true);
  if (!left) return std::nullopt;
  expr.terms.push_back(*std::move(left));
  if (now().is(":=") || now().is("=")) {
    expr.form = now().is("=") ? ExprForm::unify : ExprForm::assign;
    next();
    auto right = infix(true);
    if (!right) return std::nullopt;
    expr.terms.push_back(*std::move(right));
  }
  return expr;
}

bool Parser::withs(Expr& expr) {
  while (keyword("with")) {
    With with;
    with.at = now().at;
    next();
    if (now().kind != TokenKind::name) {
      unexpected();
      return false;
    }
    auto target = primary();
    if (!target) return false;
    with.target = *std::move(target);
    if (!keyword("as")) {
      fail("expected 'as' after the target of 'with'");
      return false;
    }
    next();
    auto value = infix(true);
    if (!value) return false;
    with.value = *std::move(value);
    expr.withs.push_back(std::move(with));
  }
  return true;
}

std::optional<Body> Parser::query() {
  words_.all();
  if (now().kind == TokenKind::end) return fail("empty query");
  return body("");
}

}  // namespace openshell::policy::rego
