// The tokens of a GraphQL document. Internal to its parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace openshell::policy {

struct GraphqlToken {
  enum class Kind : std::uint8_t { end, punctuator, name, number, string, error } kind = Kind::end;
  std::string_view text;  ///< as written; punctuator: one character, or `...`; error: why

  [[nodiscard]] bool is(std::string_view punctuator) const { return kind == Kind::punctuator && text == punctuator; }
};

/// Splits `text`, which is valid UTF-8. An error repeats for ever.
class GraphqlLexer {
 public:
  explicit GraphqlLexer(std::string_view text) : text_{text} {}
  GraphqlToken next();

 private:
  GraphqlToken fail(std::string_view why);
  void ignored();
  GraphqlToken number();
  GraphqlToken string();
  GraphqlToken block_string();
  bool escape();
  [[nodiscard]] char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t tokens_ = 0;
  std::string_view error_;
};

}  // namespace openshell::policy
