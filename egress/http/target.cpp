#include "egress/http/target.hpp"

#include <algorithm>

#include "egress/http/head.hpp"

namespace openshell::egress::http {
namespace {

constexpr std::string_view kLiteralPunctuation = "-._~!$&'()*+,;=:@";  // unreserved, sub-delims, ':' and '@' of RFC 3986
constexpr char kEncodedSlash = '\x01';  // stands for %2F between decoding and encoding; a decoded control byte is an error, so it is free

absl::Status bad(const char* text) { return absl::InvalidArgumentError(text); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

absl::Status check_bytes(std::string_view raw) {
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) return bad("request-target contains raw non-ASCII bytes; non-ASCII must be percent-encoded");
    if (byte < 0x20 || byte == 0x7f) return bad("request-target contains a null or control byte");
    if (c == '#') return bad("request-target contains a fragment");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> decode_path(std::string_view path, bool allow_encoded_slash) {
  std::string out;
  out.reserve(path.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == ' ') return bad("request-target contains a null or control byte");
    if (c == '%') {
      const int high = i + 2 < path.size() ? hex_digit(path[i + 1]) : -1;
      const int low = high >= 0 ? hex_digit(path[i + 2]) : -1;
      if (low < 0) return bad("request-target contains an invalid percent-encoded sequence");
      c = static_cast<char>(high * 16 + low);
      i += 2;
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7f) return bad("request-target contains a null or control byte");
      if (c == '/') {
        if (!allow_encoded_slash) return bad("request-target contains an encoded '/' (%2F) which is not allowed on this endpoint");
        c = kEncodedSlash;
      }
    }
    if (c == '\\') return bad("request-target contains a backslash");
    out.push_back(c);
  }
  if (!is_valid_utf8(out)) return bad("request-target does not decode to valid UTF-8");
  return out;
}

bool has_dot_segment(std::string_view path) {
  std::size_t start = 0;
  for (std::size_t i = 0; i <= path.size(); ++i) {
    if (i != path.size() && path[i] != '/' && path[i] != kEncodedSlash) continue;
    const auto segment = path.substr(start, i - start);
    if (segment == "." || segment == "..") return true;
    start = i + 1;
  }
  return false;
}

/// Segments of an absolute path without parameters, dots resolved, empty inner segments dropped. A trailing slash is a last empty segment.
absl::StatusOr<std::vector<std::string>> resolve(std::string_view decoded) {
  std::vector<std::string> out;
  bool trailing = false;
  std::string_view rest = decoded.substr(1);
  while (true) {
    const auto slash = rest.find('/');
    auto segment = rest.substr(0, slash);
    segment = segment.substr(0, segment.find(';'));
    trailing = segment.empty() || segment == "." || segment == "..";
    if (segment == "..") {
      if (out.empty()) return bad("request-target's `..` segment would escape the path root");
      out.pop_back();
    } else if (!segment.empty() && segment != ".") {
      out.emplace_back(segment);
    }
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  if (trailing) out.emplace_back();
  return out;
}

void encode_segment(std::string& out, std::string_view segment) {
  while (true) {
    const auto slash = segment.find(kEncodedSlash);
    percent_encode(out, segment.substr(0, slash), kLiteralPunctuation);
    if (slash == std::string_view::npos) return;
    out.append("%2F");
    segment.remove_prefix(slash + 1);
  }
}

}  // namespace

void percent_encode(std::string& out, std::string_view text, std::string_view literal) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (const char c : text) {
    const bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (alnum || literal.find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
}

bool is_valid_utf8(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    const auto second = static_cast<unsigned char>(text[i + 1]);
    // Overlong forms, surrogates and what lies beyond U+10FFFF.
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
        (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
      if (low < 0) return std::nullopt;
      out.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else {
      out.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return out;
}

std::optional<AbsoluteForm> split_absolute_form(std::string_view target) {
  const auto colon = target.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  AbsoluteForm out;
  out.scheme = target.substr(0, colon);
  if (!equal_ignoring_case(out.scheme, "http") && !equal_ignoring_case(out.scheme, "https")) return std::nullopt;
  const auto rest = target.substr(colon + 3);
  const auto end = std::min(rest.find_first_of("/?#"), rest.size());
  out.authority = rest.substr(0, end);
  out.rest = rest.substr(end);
  return out;
}

absl::StatusOr<Target> canonical_target(std::string_view raw, bool allow_encoded_slash) {
  if (auto status = check_bytes(raw); !status.ok()) return status;
  if (const auto absolute = split_absolute_form(raw)) raw = absolute->rest;
  Target out;
  const auto question = raw.find('?');
  if (question != std::string_view::npos) out.query = raw.substr(question + 1);
  auto path = raw.substr(0, question);
  if (path.empty()) path = "/";
  if (path.front() != '/') return bad("request-target is not a valid origin-form path");
  if (path.size() > kMaxPathBytes) return bad("request-target exceeds the configured maximum length");
  const auto decoded = decode_path(path, allow_encoded_slash);
  if (!decoded.ok()) return decoded.status();
  const auto segments = resolve(*decoded);
  if (!segments.ok()) return segments.status();
  for (const auto& segment : *segments) {
    if (has_dot_segment(segment)) return bad("request-target still contains a `.`/`..` segment after canonicalization");
    out.path.push_back('/');
    encode_segment(out.path, segment);
  }
  if (out.path.empty()) out.path = "/";
  return out;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!query.empty()) {
    const auto ampersand = query.find('&');
    const auto pair = query.substr(0, ampersand);
    query = ampersand == std::string_view::npos ? std::string_view{} : query.substr(ampersand + 1);
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    auto name = percent_decode(pair.substr(0, equals), true);
    auto value = percent_decode(equals == std::string_view::npos ? std::string_view{} : pair.substr(equals + 1), true);
    if (!name || !value) return bad("query contains an invalid percent-encoded sequence");
    if (!is_valid_utf8(*name) || !is_valid_utf8(*value)) return bad("query does not decode to valid UTF-8");
    out.emplace_back(std::move(*name), std::move(*value));
  }
  return out;
}

}  // namespace openshell::egress::http
