#include "egress/credentials/placeholder.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace openshell::egress {
namespace {

constexpr std::size_t kHandleDigits = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_key_char(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_alias_char(char c) { return is_key_char(c) || c == '-' || c == '.' || c == '~'; }
bool is_lower_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }

/// Splits `v<digits>_<key>` and `s<64 hex>_<key>`; everything else is a canonical key.
bool read_name(std::string_view name, Placeholder& out) {
  if (name.empty()) return false;
  out.form = Placeholder::Form::kCanonical;
  out.key = name;
  if (name.front() == 'v') {
    std::size_t end = 1;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end > 1 && end + 1 < name.size() && name[end] == '_') {
      const auto [stop, error] = std::from_chars(name.data() + 1, name.data() + end, out.revision);
      if (error != std::errc{} || stop != name.data() + end) return false;
      out.form = Placeholder::Form::kRevision;
      out.key = name.substr(end + 1);
    }
  } else if (name.front() == 's' && name.size() > kHandleDigits + 2 && name[kHandleDigits + 1] == '_') {
    const auto handle = name.substr(1, kHandleDigits);
    if (std::all_of(handle.begin(), handle.end(), is_lower_hex)) {
      out.form = Placeholder::Form::kStable;
      out.handle = handle;
      out.key = name.substr(kHandleDigits + 2);
    }
  }
  return true;
}

std::string_view key_chars_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_key_char(text[end])) ++end;
  return text.substr(at, end - at);
}

/// The placeholder of the first marker at or after `from`. `found` false: no marker.
std::optional<Placeholder> next_placeholder(std::string_view text, std::size_t from, bool& found) {
  const auto plain = text.find(kPlaceholderMarker, from);
  const auto alias = text.find(kAliasMarker, from);
  found = plain != std::string_view::npos || alias != std::string_view::npos;
  if (!found) return std::nullopt;
  Placeholder out;
  if (plain < alias) {
    const auto name = key_chars_at(text, plain + kPlaceholderMarker.size());
    if (!read_name(name, out)) return std::nullopt;
    out.begin = plain;
    out.length = kPlaceholderMarker.size() + name.size();
    return out;
  }
  std::size_t begin = alias;
  while (begin > from && is_alias_char(text[begin - 1])) --begin;
  const auto name = key_chars_at(text, alias + kAliasMarker.size());
  const std::size_t end = alias + kAliasMarker.size() + name.size();
  const bool bounded = end == text.size() || !is_alias_char(text[end]);
  if (begin == alias || !bounded || !read_name(name, out)) return std::nullopt;
  out.alias = true;
  out.begin = begin;
  out.length = end - begin;
  return out;
}

/// Escapes that are no escapes stay as they are.
std::string decode_once(std::string_view text) {
  const auto digit = [](char c) { return is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; };
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool has_raw_marker(std::string_view text) {
  return text.find(kPlaceholderMarker) != std::string_view::npos || text.find(kAliasMarker) != std::string_view::npos;
}

}  // namespace

std::optional<std::vector<Placeholder>> find_placeholders(std::string_view text) {
  std::vector<Placeholder> out;
  std::size_t from = 0;
  while (true) {
    bool found = false;
    auto next = next_placeholder(text, from, found);
    if (!found) return out;
    if (!next) return std::nullopt;
    from = next->begin + next->length;
    out.push_back(std::move(*next));
  }
}

std::vector<Placeholder> well_formed_placeholders(std::string_view text) {
  std::vector<Placeholder> out;
  std::size_t from = 0;
  while (true) {
    bool found = false;
    auto next = next_placeholder(text, from, found);
    if (!found) return out;
    if (next) {
      from = next->begin + next->length;
      out.push_back(std::move(*next));
    } else {
      const auto plain = text.find(kPlaceholderMarker, from), alias = text.find(kAliasMarker, from);
      from = plain < alias ? plain + kPlaceholderMarker.size() : alias + kAliasMarker.size();
    }
  }
}

std::optional<Placeholder> parse_placeholder(std::string_view text) {
  auto all = find_placeholders(text);
  if (!all || all->size() != 1 || all->front().begin != 0 || all->front().length != text.size()) return std::nullopt;
  return std::move(all->front());
}

bool has_marker(std::string_view text) {
  return has_raw_marker(text) || (text.find('%') != std::string_view::npos && has_raw_marker(decode_once(text)));
}

std::optional<std::string> redact_placeholders(std::string_view text) {
  const auto all = find_placeholders(text);
  if (!all) return std::nullopt;
  std::string out;
  std::size_t from = 0;
  for (const auto& one : *all) {
    out.append(text.substr(from, one.begin - from)).append(kRedacted);
    from = one.begin + one.length;
  }
  return out.append(text.substr(from));
}

bool is_reserved_key(std::string_view key) {
  if (key.size() > 2 && key.front() == 'v' && is_digit(key[1])) {
    const auto end = key.find_first_not_of("0123456789", 1);
    return end != std::string_view::npos && key[end] == '_' && end + 1 < key.size();
  }
  Placeholder parsed;
  return read_name(key, parsed) && parsed.form == Placeholder::Form::kStable;
}

std::string canonical_placeholder(std::string_view key) { return fmt::format("{}{}", kPlaceholderMarker, key); }
std::string revision_placeholder(std::uint64_t revision, std::string_view key) {
  return revision == 0 ? canonical_placeholder(key) : fmt::format("{}v{}_{}", kPlaceholderMarker, revision, key);
}
std::string stable_placeholder(std::string_view handle, std::string_view key) {
  return fmt::format("{}s{}_{}", kPlaceholderMarker, handle, key);
}

}  // namespace openshell::egress
