#include "policy/rego/parser.hpp"

#include "policy/rego/parser_state.hpp"
#include "policy/text.hpp"

#include <algorithm>
#include <array>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

constexpr std::array<std::string_view, 12> kAlways = {"as",   "default", "else", "false", "import", "not",
                                                      "null", "package", "some", "true",  "with",   "\x01"};

bool always_reserved(std::string_view word) { return std::find(kAlways.begin(), kAlways.end(), word) != kAlways.end(); }

}  // namespace

std::string describe(const Error& error) {
  std::string place = error.file;
  if (error.at.row != 0) place += cat(place.empty() ? "" : ":", error.at.row, ":", error.at.column);
  return cat(place, place.empty() ? "" : ": ", error.code, ": ", error.message);
}

Parser::Parser(std::vector<Token> tokens, std::string_view file, Syntax syntax) : tokens_(std::move(tokens)), file_(file), syntax_(syntax) {
  if (syntax == Syntax::v1) {
    words_.all();
    words_.v1 = true;
  }
}

bool Parser::take(std::string_view mark) {
  if (!now().is(mark)) return false;
  next();
  return true;
}

bool Parser::expect(std::string_view mark) {
  if (take(mark)) return true;
  unexpected();
  return false;
}

bool Parser::keyword(std::string_view word) const {
  if (!now().is_name(word)) return false;
  if (word == "if") return words_.if_;
  if (word == "contains") return words_.contains;
  if (word == "in") return words_.in;
  if (word == "every") return words_.every;
  return true;
}

bool Parser::take_word(std::string_view word) {
  if (!keyword(word)) return false;
  next();
  return true;
}

bool Parser::is_reserved(const Token& token) const {
  if (token.kind != TokenKind::name) return false;
  if (always_reserved(token.text)) return true;
  return (words_.if_ && token.text == "if") || (words_.contains && token.text == "contains") || (words_.in && token.text == "in") ||
         (words_.every && token.text == "every");
}

std::nullopt_t Parser::fail_at(Position at, std::string message) {
  if (!error_) error_ = Error{std::string(code::kParse), std::move(message), file_, at};
  return std::nullopt;
}

std::nullopt_t Parser::fail(std::string message) { return fail_at(now().at, std::move(message)); }

std::nullopt_t Parser::unexpected() {
  switch (now().kind) {
    case TokenKind::broken:
      return fail(now().text);
    case TokenKind::end:
      return fail("unexpected eof token");
    case TokenKind::name:
      if (is_reserved(now())) return fail(cat("unexpected ", now().text, " keyword"));
      return fail(cat("unexpected identifier token: ", now().text));
    case TokenKind::number:
      return fail("unexpected number token");
    case TokenKind::string:
    case TokenKind::pattern:
      return fail("unexpected string token");
    case TokenKind::punctuation:
      return fail(cat("unexpected ", now().text, " token"));
  }
  return std::nullopt;
}

bool Parser::too_deep() {
  if (depth_ < kMaxNesting) return false;
  limit_ = true;
  error_ = Error{std::string(code::kLoadLimit), cat("nested more than ", kMaxNesting, " levels deep"), file_, now().at};
  return true;
}

bool Parser::package(Module& module) {
  if (now().kind == TokenKind::end) {
    fail("empty module");
    return false;
  }
  if (!keyword("package")) {
    if (now().kind == TokenKind::broken) {
      unexpected();
    } else {
      fail("package expected");
    }
    return false;
  }
  module.at = now().at;
  next();
  if (now().kind != TokenKind::name) {
    unexpected();
    return false;
  }
  module.package.push_back(now().text);
  next();
  while (!now().after_space && (now().is(".") || now().is("["))) {
    const bool dot = now().is(".");
    next();
    if (now().kind != (dot ? TokenKind::name : TokenKind::string)) {
      unexpected();
      return false;
    }
    module.package.push_back(now().text);
    next();
    if (!dot && !expect("]")) return false;
  }
  return true;
}

std::optional<Import> Parser::import(Module& module) {
  Import made;
  made.at = now().at;
  next();
  if (now().kind != TokenKind::name) return unexpected();
  auto path = primary();
  if (!path) return std::nullopt;
  if (path->is_variable()) {
    made.path.push_back(*std::move(path));
  } else if (path->form == TermForm::reference && path->parts[0].is_variable()) {
    made.path = std::move(path->parts);
  } else {
    return fail_at(made.at, "unexpected import path, must begin with one of: {data, future, input, rego}");
  }
  const std::string& root = made.path[0].name;
  if (root != "data" && root != "input" && root != "future" && root != "rego") {
    return fail_at(made.at, cat("unexpected import path, must begin with one of: {data, future, input, rego}, got: ", root));
  }
  for (std::size_t i = 1; i < made.path.size(); ++i) {
    if (!made.path[i].is_string()) return fail_at(made.path[i].at, "unexpected import path: expecting string");
  }
  if (keyword("as")) {
    next();
    if (now().kind != TokenKind::name || is_reserved(now())) return unexpected();
    made.alias = now().text;
    if (made.alias == "input" || made.alias == "data")
      return fail(cat("unexpected import alias, must not be a reserved name, got: ", made.alias));
    next();
  }
  if ((root == "future" || root == "rego") && !apply_words(made, module)) return std::nullopt;
  return made;
}

/// `future.keywords[.word]` and `rego.v1` say how the rest is to be read.
bool Parser::apply_words(const Import& import, Module& module) {
  const auto part = [&](std::size_t i) { return i < import.path.size() ? import.path[i].scalar.text() : std::string_view(); };
  if (!import.alias.empty()) {
    fail_at(import.at, cat("`", import.path[0].name, "` imports cannot be aliased"));
    return false;
  }
  if (import.path[0].name == "rego") {
    if (import.path.size() != 2 || part(1) != "v1") return true;
    words_.all();
    words_.v1 = true;
    module.strict = true;
    return true;
  }
  if (part(1) != "keywords" || import.path.size() > 3) {
    fail_at(import.at, "invalid import, must be `future.keywords`");
    return false;
  }
  const auto word = part(2);
  if (word.empty()) {
    words_.all();
  } else if (word == "if") {
    words_.if_ = true;
  } else if (word == "in") {
    words_.in = true;
  } else if (word == "contains") {
    words_.contains = true;
  } else if (word == "every") {
    words_.every = words_.in = true;
  } else if (word != "not") {
    fail_at(import.at, "unexpected keyword, must be one of [contains every if in]");
    return false;
  }
  return true;
}

std::optional<Module> Parser::module() {
  Module made;
  made.file = file_;
  made.strict = syntax_ == Syntax::v1;
  if (!package(made)) return std::nullopt;
  while (true) {
    if (now().kind == TokenKind::end) return made;
    if (keyword("import")) {
      auto found = import(made);
      if (!found) return std::nullopt;
      made.imports.push_back(*std::move(found));
    } else if (!rules(made)) {
      return std::nullopt;
    }
  }
}

std::variant<Module, Error> parse_module(std::string_view file, std::string_view source, Syntax syntax) {
  if (source.size() > kMaxSourceBytes) {
    return Error{std::string(code::kLoadLimit), cat("the text is longer than ", kMaxSourceBytes, " bytes"), std::string(file), {}};
  }
  Parser parser(tokenize(source), file, syntax);
  auto module = parser.module();
  if (!module) return parser.error();
  return *std::move(module);
}

std::variant<Body, Error> parse_query(std::string_view source, Syntax syntax) {
  if (source.size() > kMaxSourceBytes) {
    return Error{std::string(code::kLoadLimit), cat("the text is longer than ", kMaxSourceBytes, " bytes"), "", {}};
  }
  Parser parser(tokenize(source), "", syntax);
  auto body = parser.query();
  if (!body) return parser.error();
  return *std::move(body);
}

}  // namespace openshell::policy::rego
