#include "policy/glob_tokens.hpp"

#include <algorithm>

#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// What a host pattern spells out: letters, digits, hyphen and underscore of a label, colons of an IPv6 address.
bool is_host_byte(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == ':';
}

std::string_view place_of(GlobKind kind) {
  switch (kind) {
    case GlobKind::host:
      return "a host name";
    case GlobKind::dotted:
      return "a name";
    default:
      return "a path";
  }
}

}  // namespace

bool stays_literal(unsigned char c) {
  if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) return true;
  return std::string_view{"-._~!$&'()*+,;=:@"}.find(static_cast<char>(c)) != std::string_view::npos;
}

void append_triplet(std::string& out, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  out += '%';
  out += kDigits[byte >> 4U];
  out += kDigits[byte & 0xFU];
}

bool nullable(const Token& token) {
  switch (token.kind) {
    case Token::Kind::literal:
      return token.literal.empty();
    case Token::Kind::star:
    case Token::Kind::recursive:
      return true;
    case Token::Kind::choice:
      return std::any_of(token.branches.begin(), token.branches.end(),
                         [](const Tokens& branch) { return std::all_of(branch.begin(), branch.end(), nullable); });
    default:
      return false;
  }
}

std::string canonical_path_pattern(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    auto byte = static_cast<unsigned char>(pattern[i]);
    if (byte == '[') {
      const auto close = std::min(pattern.find(']', i), pattern.size() - 1);
      out += pattern.substr(i, close - i + 1);
      i = close;
      continue;
    }
    if (std::string_view{"*?{},/"}.find(pattern[i]) != std::string_view::npos) {
      out += pattern[i];
      continue;
    }
    bool escaped = false;
    if (byte == '%' && i + 2 < pattern.size()) {
      byte = static_cast<unsigned char>(hex_digit(pattern[i + 1]) * 16 + hex_digit(pattern[i + 2]));
      escaped = true;
      i += 2;
    }
    if (escaped && (byte == '*' || byte == ',')) {  // literal in a path, syntax here
      out += byte == '*' ? "[*]" : "[,]";
    } else if (stays_literal(byte)) {
      out += static_cast<char>(byte);
    } else {
      append_triplet(out, byte);
    }
  }
  return out;
}

absl::Status invalid_pattern(std::string_view why) { return absl::InvalidArgumentError(cat("is invalid: ", why)); }

absl::StatusOr<Tokens> TokenReader::read(std::string_view text) {
  auto parts = tokens(text, 0);
  if (parts.ok() && !text.empty()) return absl::InvalidArgumentError("has unmatched '}'");
  return parts;
}

absl::StatusOr<Tokens> TokenReader::tokens(std::string_view& rest, std::size_t depth) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    out.push_back({Token::Kind::literal, run, {}, false, {}});
    run.clear();
  };
  while (!rest.empty()) {
    const char c = rest.front();
    if (depth > 0 && (c == ',' || c == '}')) break;
    switch (c) {
      case '*': {
        flush();
        std::size_t stars = 0;
        while (!rest.empty() && rest.front() == '*') {
          rest.remove_prefix(1);
          ++stars;
        }
        const bool crosses = stars > 1 && kind_ == GlobKind::dotted;
        out.push_back({crosses ? Token::Kind::recursive : Token::Kind::star, {}, {}, false, {}});
        continue;
      }
      case '?':
        flush();
        out.push_back({Token::Kind::any, {}, {}, false, {}});
        rest.remove_prefix(1);
        continue;
      case '[': {
        flush();
        auto token = char_class(rest);
        if (!token.ok()) return token.status();
        out.push_back(*std::move(token));
        continue;
      }
      case ']':
        return absl::InvalidArgumentError("has unmatched ']'");
      case '{': {
        flush();
        auto token = choice(rest, depth);
        if (!token.ok()) return token.status();
        out.push_back(*std::move(token));
        continue;
      }
      case '}':
        return absl::InvalidArgumentError("has unmatched '}'");
      case '\\':
        if (kind_ != GlobKind::dotted) return invalid_pattern(cat("a backslash never occurs in ", place_of(kind_)));
        rest.remove_prefix(1);
        if (rest.empty()) return invalid_pattern("it ends in a backslash");
        run += rest.front();
        rest.remove_prefix(1);
        continue;
      default: {
        const absl::Status status = character(rest, run);
        if (!status.ok()) return status;
      }
    }
  }
  flush();
  return out;
}

// One literal character, spelled as canonical paths spell it.
absl::Status TokenReader::character(std::string_view& rest, std::string& run) {
  auto byte = static_cast<unsigned char>(rest.front());
  rest.remove_prefix(1);
  if (byte == 0) return invalid_pattern("it holds a NUL byte");
  if (kind_ == GlobKind::host && !is_host_byte(byte)) {
    return invalid_pattern(byte > 0x20 && byte < 0x7F ? cat("'", std::string(1, static_cast<char>(byte)), "' never occurs in a host name")
                                                      : "it holds a byte that no host name has");
  }
  if (!is_path()) {
    run += static_cast<char>(byte);
    return absl::OkStatus();
  }
  bool escaped = false;
  if (byte == '%') {
    const int high = rest.size() >= 2 ? hex_digit(rest[0]) : -1;
    const int low = rest.size() >= 2 ? hex_digit(rest[1]) : -1;
    if (high < 0 || low < 0) return invalid_pattern("it holds a bad percent escape");
    byte = static_cast<unsigned char>(high * 16 + low);
    rest.remove_prefix(2);
    escaped = true;
  }
  if (byte < 0x20 || byte == 0x7F) return invalid_pattern("it holds a control byte");
  if (byte == '\\') return invalid_pattern("a backslash never occurs in a path");
  if (!escaped && (byte == ';' || byte == '#'))
    return invalid_pattern(cat("'", std::string(1, static_cast<char>(byte)), "' never occurs in a path"));
  if (byte == '/') {  // only escaped: the pattern was split at the others
    if (kind_ != GlobKind::path_encoded_slash) return invalid_pattern("%2F needs allow_encoded_slash on the endpoint");
    append_triplet(run, byte);
  } else if (stays_literal(byte)) {
    run += static_cast<char>(byte);
  } else {
    append_triplet(run, byte);
  }
  return absl::OkStatus();
}

absl::StatusOr<Token> TokenReader::char_class(std::string_view& rest) {
  rest.remove_prefix(1);
  Token token{Token::Kind::char_class, {}, {}, false, {}};
  bool negated = false;
  if (!rest.empty() && rest.front() == '!') {
    negated = true;
    rest.remove_prefix(1);
  }
  const auto close = rest.find(']');
  if (close == std::string_view::npos) return absl::InvalidArgumentError("has unclosed '['");
  const auto body = rest.substr(0, close);
  rest.remove_prefix(close + 1);
  if (body.empty()) return invalid_pattern("it holds an empty class");
  for (std::size_t i = 0; i < body.size(); ++i) {
    const auto first = static_cast<unsigned char>(body[i]);
    auto last = first;
    if (i + 2 < body.size() && body[i + 1] == '-') {
      last = static_cast<unsigned char>(body[i + 2]);
      i += 2;
    }
    if (first > 0x7F || last > 0x7F) return invalid_pattern("a class holds a character above U+007F");
    if (first < 0x20 || last == 0x7F) return invalid_pattern("a class holds a control byte");
    if (last < first) return invalid_pattern("a class holds a range that runs backwards");
    put(token.ascii, first, last);
  }
  if (negated) {
    for (auto& word : token.ascii) word = ~word;
    token.ascii[2] = token.ascii[3] = 0;
    token.beyond_ascii = true;
  }
  if (is_segmented()) drop(token.ascii, '/');
  return token;
}

absl::StatusOr<Token> TokenReader::choice(std::string_view& rest, std::size_t depth) {
  if (depth > 0 && kind_ != GlobKind::dotted) return invalid_pattern("braces may not be nested");
  if (depth >= kMaxGlobNesting) return invalid_pattern("braces are nested too deeply");
  rest.remove_prefix(1);
  Token token{Token::Kind::choice, {}, {}, false, {}};
  while (true) {
    auto branch = tokens(rest, depth + 1);
    if (!branch.ok()) return branch.status();
    token.branches.push_back(*std::move(branch));
    if (rest.empty()) return absl::InvalidArgumentError("has unclosed '{'");
    const char c = rest.front();
    rest.remove_prefix(1);
    if (c == '}') return token;
  }
}

}  // namespace openshell::policy
