// Source text of the language to tokens. The parser decides which words are keywords: that depends on imports.
#pragma once

#include "policy/rego/error.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

/// A source text in bytes.
inline constexpr std::size_t kMaxSourceBytes = 1U << 20;

enum class TokenKind : std::uint8_t {
  end,
  name,  ///< Identifier or keyword.
  number,
  string,   ///< Quoted or raw; text holds what it means.
  pattern,  ///< String with holes, `$"..{term}.."`; pieces hold what it means.
  punctuation,
  broken  ///< What no token can be; text says why.
};

/// A part of a string with holes: text that means itself, or the source of a term and where it stands.
struct Piece {
  bool hole = false;
  std::string text;
  std::size_t offset = 0;
  Position at;
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  std::vector<Piece> pieces;
  Position at;
  std::size_t begin = 0;  ///< Byte offsets in the source.
  std::size_t end = 0;
  std::uint32_t end_row = 0;  ///< Row of the last byte: a raw string may span rows.
  bool after_space = false;   ///< White space or a comment stands before it.

  [[nodiscard]] bool is(std::string_view mark) const { return kind == TokenKind::punctuation && text == mark; }
  [[nodiscard]] bool is_name(std::string_view word) const { return kind == TokenKind::name && text == word; }
};

/// All tokens, the last one `end`; a broken one ends the list too. `from` is the position of the first byte.
std::vector<Token> tokenize(std::string_view source, Position from = {1, 1});

}  // namespace openshell::policy::rego
