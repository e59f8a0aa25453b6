#include "policy/rego/lexer.hpp"

#include "policy/rego/value.hpp"
#include "policy/text.hpp"

#include <array>
#include <cctype>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_name(char c) { return begins_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Lexer {
 public:
  Lexer(std::string_view source, Position from) : source_(source), here_(from) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    while (true) {
      const bool space = skip_space();
      Token token;
      token.at = here_;
      token.begin = at_;
      token.after_space = space;
      read(token);
      token.end = at_;
      token.end_row = here_.row;
      tokens.push_back(std::move(token));
      if (tokens.back().kind == TokenKind::end || tokens.back().kind == TokenKind::broken) return tokens;
    }
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  [[nodiscard]] bool done() const { return at_ >= source_.size(); }

  void advance() {
    if (source_[at_] == '\n') {
      ++here_.row;
      here_.column = 1;
    } else {
      ++here_.column;
    }
    ++at_;
  }

  bool skip_space() {
    const std::size_t start = at_;
    while (!done()) {
      const char c = peek();
      if (c == '#') {
        while (!done() && peek() != '\n') advance();
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        advance();
      } else {
        break;
      }
    }
    return at_ != start;
  }

  static void breaks(Token& token, std::string why) {
    token.kind = TokenKind::broken;
    token.text = std::move(why);
  }

  void read(Token& token) {
    if (done()) return;
    const char c = peek();
    if (begins_name(c)) {
      token.kind = TokenKind::name;
      while (!done() && in_name(peek())) take(token);
      return;
    }
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number(token);
    if (c == '"') return quoted(token);
    if (c == '`') return raw(token);
    if (c == '$' && (peek(1) == '"' || peek(1) == '`')) {
      advance();
      return pattern(token);
    }
    static constexpr std::array<std::string_view, 5> kPairs = {":=", "==", "!=", "<=", ">="};
    token.kind = TokenKind::punctuation;
    for (const auto pair : kPairs) {
      if (source_.substr(at_).starts_with(pair)) {
        take(token);
        take(token);
        return;
      }
    }
    if (std::string_view("[]{}(),;:.=<>+-*/%&|").find(c) != std::string_view::npos) return take(token);
    advance();
    breaks(token, cat("illegal token ", std::string_view(&c, 1)));
  }

  void take(Token& token) {
    token.text += peek();
    advance();
  }

  void number(Token& token) {
    token.kind = TokenKind::number;
    const auto digits = [&] {
      const std::size_t start = at_;
      while (is_digit(peek())) take(token);
      return at_ != start;
    };
    const bool whole = digits();
    if (whole && token.text.size() > 1 && token.text[0] == '0') return breaks(token, "expected number");
    if (peek() == '.') {
      take(token);
      if (!digits()) return breaks(token, "expected fraction");
    }
    if (peek() == 'e' || peek() == 'E') {
      take(token);
      if (peek() == '+' || peek() == '-') take(token);
      if (!digits()) return breaks(token, "expected exponent");
    }
    if (begins_name(peek())) breaks(token, "illegal number format");
  }

  void raw(Token& token) {
    token.kind = TokenKind::string;
    advance();
    while (!done() && peek() != '`') {
      if (peek() == '\r') {
        advance();
      } else {
        take(token);
      }
    }
    if (done()) return breaks(token, "non-terminated string");
    advance();
  }

  void quoted(Token& token) {
    token.kind = TokenKind::string;
    const std::size_t start = at_;
    advance();
    while (!done() && peek() != '"' && peek() != '\n') {
      if (peek() == '\\') advance();
      if (!done()) advance();
    }
    if (done() || peek() == '\n') return breaks(token, "non-terminated string");
    advance();
    const auto parsed = parse_json(source_.substr(start, at_ - start));
    if (!parsed.ok()) return breaks(token, "illegal escape sequence or byte in string");
    token.text = std::string(parsed->text());
  }

  /// After the dollar sign.
  void pattern(Token& token) {
    token.kind = TokenKind::pattern;
    const char mark = peek();
    advance();
    std::string text;
    const auto flush = [&] {
      if (text.empty()) return true;
      Piece piece;
      if (mark == '"') {
        const auto parsed = parse_json(cat("\"", text, "\""));
        if (!parsed.ok()) return false;
        piece.text = std::string(parsed->text());
      } else {
        piece.text = text;
      }
      token.pieces.push_back(std::move(piece));
      text.clear();
      return true;
    };
    while (!done() && peek() != mark) {
      if (mark == '"' && peek() == '\n') return breaks(token, "non-terminated string");
      if (peek() == '\\' && (peek(1) == '{' || peek(1) == '}')) {
        advance();
        text += peek();
        advance();
      } else if (peek() == '\\' && mark == '"') {
        text += peek();
        advance();
        if (done()) break;
        text += peek();
        advance();
      } else if (peek() == '{') {
        if (!flush()) return breaks(token, "illegal escape sequence or byte in string");
        if (!hole(token)) return breaks(token, "non-terminated string interpolation");
      } else {
        text += peek();
        advance();
      }
    }
    if (done()) return breaks(token, "non-terminated string");
    advance();
    if (!flush()) breaks(token, "illegal escape sequence or byte in string");
  }

  /// `{source of a term}`; strings in it may hold braces.
  bool hole(Token& token) {
    advance();
    Piece piece;
    piece.hole = true;
    piece.offset = at_;
    piece.at = here_;
    int depth = 0;
    while (!done()) {
      const char c = peek();
      if (c == '}' && depth == 0) {
        piece.text = std::string(source_.substr(piece.offset, at_ - piece.offset));
        token.pieces.push_back(std::move(piece));
        advance();
        return true;
      }
      if (c == '{') ++depth;
      if (c == '}') --depth;
      if (c == '#') {
        while (!done() && peek() != '\n') advance();
      } else if (c == '"' || c == '`') {
        if (!skip_string(c)) return false;
      } else {
        advance();
      }
    }
    return false;
  }

  bool skip_string(char mark) {
    advance();
    while (!done() && peek() != mark) {
      if (mark == '"' && peek() == '\\') advance();
      if (!done()) advance();
    }
    if (done()) return false;
    advance();
    return true;
  }

  std::string_view source_;
  std::size_t at_ = 0;
  Position here_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, Position from) { return Lexer(source, from).run(); }

}  // namespace openshell::policy::rego
