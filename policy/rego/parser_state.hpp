// The recursive-descent parser, for the files that hold its parts: terms, literals, rules.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/lexer.hpp"
#include "policy/rego/parser.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

/// Words that mean something beyond a name in the module at hand.
struct Words {
  bool v1 = false;  ///< `if` and `contains` must be written.
  bool if_ = false;
  bool contains = false;
  bool in = false;
  bool every = false;

  void all() { if_ = contains = in = every = true; }
};

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view file, Syntax syntax);

  std::optional<Module> module();
  std::optional<Body> query();
  [[nodiscard]] const Error& error() const { return *error_; }

 private:
  // Tokens.
  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& after(std::size_t ahead = 1) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  [[nodiscard]] const Token& before() const { return tokens_[at_ == 0 ? 0 : at_ - 1]; }
  void next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool take(std::string_view mark);
  bool expect(std::string_view mark);
  [[nodiscard]] bool keyword(std::string_view word) const;  ///< The token is this word, and it is one here.
  bool take_word(std::string_view word);
  [[nodiscard]] bool is_reserved(const Token& token) const;
  std::nullopt_t fail(std::string message);
  std::nullopt_t fail_at(Position at, std::string message);
  std::nullopt_t unexpected();

  // Terms.
  std::optional<Term> infix(bool pair, std::optional<Term> left = std::nullopt);
  std::optional<Term> binary(int level, std::optional<Term> left);
  std::optional<Term> primary();
  std::optional<Term> simple();
  std::optional<Term> named();
  std::optional<Term> negative_number();
  std::optional<Term> pattern();
  std::optional<Term> bracketed();
  std::optional<Term> braced();
  std::optional<Term> object_rest(Term made, Term first_key, std::optional<Term> first_value);
  std::optional<Term> continued(Term head);
  std::optional<Term> called(Term function);
  bool list(std::vector<Term>& items, std::string_view close, std::optional<Term> first);
  std::optional<Term> comprehension(Term made, std::string_view close);

  // Literals.
  std::optional<Body> body(std::string_view close);
  std::optional<Expr> literal();
  std::optional<Expr> some();
  std::optional<Expr> every();
  std::optional<Expr> expression();
  bool withs(Expr& expr);

  // Modules.
  bool package(Module& module);
  std::optional<Import> import(Module& module);
  bool apply_words(const Import& import, Module& module);
  bool rules(Module& module);
  bool default_rule(Module& module);
  bool head(Rule& rule);
  bool older_set(Rule& rule, bool uses_if);
  bool rule_body(Rule& rule, bool& braces, bool& uses_if);
  std::shared_ptr<const Rule> otherwise(const Rule& first);
  bool check_constant(const Term& term);

  /// Counts levels while it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) { ++parser_.depth_; }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };
  bool too_deep();

  struct Mark {
    std::size_t at;
  };
  [[nodiscard]] Mark mark() const { return {at_}; }
  void reset(Mark mark) {
    at_ = mark.at;
    if (!limit_) error_.reset();
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::string file_;
  Syntax syntax_;
  Words words_;
  int depth_ = 0;
  bool limit_ = false;      ///< The error is a limit: no other reading of the text helps.
  bool older_key_ = false;  ///< The last part of the head just read stands in brackets.
  std::optional<Error> error_;
  std::set<std::size_t> no_comprehension_;  ///< Tokens where one was tried in vain.
};

}  // namespace openshell::policy::rego
