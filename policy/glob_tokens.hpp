// A pattern as a list of tokens, in the spelling in which its texts are compared. Internal to the compiler of patterns.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/glob.hpp"

namespace openshell::policy {

using ByteSet = std::array<std::uint64_t, 4>;  ///< One bit a byte.

inline void put(ByteSet& set, unsigned char byte) { set[byte >> 6U] |= std::uint64_t{1} << (byte & 63U); }
inline void put(ByteSet& set, unsigned first, unsigned last) {
  for (unsigned byte = first; byte <= last; ++byte) put(set, static_cast<unsigned char>(byte));
}
inline void drop(ByteSet& set, unsigned char byte) { set[byte >> 6U] &= ~(std::uint64_t{1} << (byte & 63U)); }
inline bool has(const ByteSet& set, unsigned char byte) { return ((set[byte >> 6U] >> (byte & 63U)) & 1U) != 0; }

/// True for bytes that the canonical form of a path leaves as they are: unreserved, sub-delims, ':' and '@' (RFC 3986).
[[nodiscard]] bool stays_literal(unsigned char c);
/// Appends `%HH`, upper case.
void append_triplet(std::string& out, unsigned char byte);

struct Token {
  enum class Kind : std::uint8_t { literal, star, recursive, any, char_class, choice } kind = Kind::literal;
  std::string literal;
  ByteSet ascii{};            ///< char_class: the ASCII characters of it.
  bool beyond_ascii = false;  ///< char_class: characters above U+007F belong to it (a negated class).
  std::vector<std::vector<Token>> branches;
};
using Tokens = std::vector<Token>;

/// True when the empty text matches.
[[nodiscard]] bool nullable(const Token& token);

/// Reads the tokens of one segment, label or dotted pattern. Errors as Glob::compile.
class TokenReader {
 public:
  explicit TokenReader(GlobKind kind) : kind_{kind} {}

  /// Consumes all of `text`.
  absl::StatusOr<Tokens> read(std::string_view text);

  [[nodiscard]] bool is_path() const { return kind_ == GlobKind::path || kind_ == GlobKind::path_encoded_slash; }
  [[nodiscard]] bool is_segmented() const { return is_path() || kind_ == GlobKind::binary; }

 private:
  absl::StatusOr<Tokens> tokens(std::string_view& rest, std::size_t depth);
  absl::Status character(std::string_view& rest, std::string& run);
  absl::StatusOr<Token> char_class(std::string_view& rest);
  absl::StatusOr<Token> choice(std::string_view& rest, std::size_t depth);

  GlobKind kind_;
};

/// A path pattern that compiles, with every literal run in the spelling in which paths are compared (`/a b` becomes `/a%20b`); wildcards,
/// classes and braces as written.
[[nodiscard]] std::string canonical_path_pattern(std::string_view pattern);

/// `is invalid: WHY`.
[[nodiscard]] absl::Status invalid_pattern(std::string_view why);

}  // namespace openshell::policy
