#include "policy/content/graphql_lexer.hpp"

#include "policy/content/graphql_document.hpp"

namespace openshell::policy {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool starts_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool in_name(char c) { return starts_name(c) || is_digit(c); }
// Control characters but for tab and line ends are no part of a document.
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r'; }

}  // namespace

GraphqlToken GraphqlLexer::fail(std::string_view why) {
  if (error_.empty()) error_ = why;
  return {GraphqlToken::Kind::error, error_};
}

void GraphqlLexer::ignored() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',') {
      ++at_;
    } else if (text_.substr(at_).starts_with("\xEF\xBB\xBF")) {  // byte order mark
      at_ += 3;
    } else if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r' && !is_control(text_[at_])) ++at_;
    } else {
      return;
    }
  }
}

GraphqlToken GraphqlLexer::next() {
  using Kind = GraphqlToken::Kind;
  if (!error_.empty()) return fail(error_);
  ignored();
  if (at_ >= text_.size()) return {};
  if (++tokens_ > kMaxGraphqlTokens) return fail("the document has too many tokens");
  const auto begin = at_;
  const char c = text_[at_];
  if (starts_name(c)) {
    while (in_name(at(at_))) ++at_;
    return {Kind::name, text_.substr(begin, at_ - begin)};
  }
  if (c == '-' || is_digit(c)) return number();
  if (c == '"') return text_.substr(at_).starts_with("\"\"\"") ? block_string() : string();
  if (c == '.') {
    if (!text_.substr(at_).starts_with("...")) return fail("the document has an unexpected character");
    at_ += 3;
    return {Kind::punctuator, text_.substr(begin, 3)};
  }
  if (std::string_view{"!$&()[]{}:=@|"}.find(c) == std::string_view::npos) return fail("the document has an unexpected character");
  ++at_;
  return {Kind::punctuator, text_.substr(begin, 1)};
}

GraphqlToken GraphqlLexer::number() {
  const auto begin = at_;
  const auto bad = [this] { return fail("the document has a malformed number"); };
  const auto digits = [this] {
    if (!is_digit(at(at_))) return false;
    while (is_digit(at(at_))) ++at_;
    return true;
  };
  if (at(at_) == '-') ++at_;
  if (at(at_) == '0') {
    ++at_;
    if (is_digit(at(at_))) return bad();
  } else if (!digits()) {
    return bad();
  }
  if (at(at_) == '.') {
    ++at_;
    if (!digits()) return bad();
  }
  if (at(at_) == 'e' || at(at_) == 'E') {
    ++at_;
    if (at(at_) == '+' || at(at_) == '-') ++at_;
    if (!digits()) return bad();
  }
  if (at(at_) == '.' || starts_name(at(at_))) return bad();
  return {GraphqlToken::Kind::number, text_.substr(begin, at_ - begin)};
}

GraphqlToken GraphqlLexer::string() {
  const auto begin = at_++;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return {GraphqlToken::Kind::string, text_.substr(begin, at_ - begin)};
    }
    if (c == '\n' || c == '\r' || is_control(c)) break;
    if (c == '\\') {
      if (!escape()) break;
    } else {
      ++at_;
    }
  }
  return fail("the document has a malformed string");
}

bool GraphqlLexer::escape() {
  ++at_;
  if (at_ >= text_.size()) return false;
  const char c = text_[at_++];
  if (c != 'u') return std::string_view{"\"\\/bfnrt"}.find(c) != std::string_view::npos;
  if (at(at_) == '{') {
    std::size_t digits = 0;
    for (++at_; is_hex(at(at_)) && digits < 8; ++at_) ++digits;
    return digits > 0 && at(at_) == '}' && ++at_ > 0;
  }
  for (int i = 0; i < 4; ++i) {
    if (!is_hex(at(at_))) return false;
    ++at_;
  }
  return true;
}

GraphqlToken GraphqlLexer::block_string() {
  const auto begin = at_;
  at_ += 3;
  while (at_ < text_.size()) {
    const auto rest = text_.substr(at_);
    if (rest.starts_with("\\\"\"\"")) {
      at_ += 4;
    } else if (rest.starts_with("\"\"\"")) {
      at_ += 3;
      return {GraphqlToken::Kind::string, text_.substr(begin, at_ - begin)};
    } else if (is_control(rest.front())) {
      break;
    } else {
      ++at_;
    }
  }
  return fail("the document has a malformed string");
}

}  // namespace openshell::policy
