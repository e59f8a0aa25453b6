#include "egress/credentials/pattern.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace openshell::egress {
namespace {

constexpr std::size_t kMaxPatternBytes = 1024;
constexpr std::size_t kMaxCrossing = 4;  // `**` parts of one pattern: bounds the work of a match

std::string lowered(std::string_view text) {
  std::string out{text};
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const auto at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

/// One `[..]` class at `at`; returns the index behind it, or npos where it does not close.
std::size_t class_end(std::string_view glob, std::size_t at) { return glob.find(']', at + 2); }

bool in_class(std::string_view body, char c) {
  const bool negated = !body.empty() && (body.front() == '!' || body.front() == '^');
  if (negated) body.remove_prefix(1);
  bool hit = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (i + 2 < body.size() && body[i + 1] == '-') {
      hit = hit || (body[i] <= c && c <= body[i + 2]);
      i += 2;
    } else {
      hit = hit || body[i] == c;
    }
  }
  return hit != negated;
}

/// Greedy with one step of backtracking: linear in practice, quadratic at worst.
bool glob_matches(std::string_view glob, std::string_view text) {
  std::size_t g = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_text = t;
      continue;
    }
    if (g < glob.size()) {
      if (glob[g] == '[') {
        const auto end = class_end(glob, g);
        if (in_class(glob.substr(g + 1, end - g - 1), text[t])) {
          g = end + 1;
          ++t;
          continue;
        }
      } else if (glob[g] == '?' || glob[g] == text[t]) {
        ++g;
        ++t;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    g = star + 1;
    t = ++star_text;
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool part_matches(const std::string& part, std::string_view text) {
  if (text.empty()) return part.empty();
  return glob_matches(part, text);
}

bool well_formed(std::string_view part) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '[') continue;
    i = class_end(part, i);
    if (i == std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<PartsPattern> PartsPattern::host(std::string_view pattern) {
  const auto invalid = absl::InvalidArgumentError(fmt::format("'{}' is not a host pattern", pattern));
  if (pattern.empty() || pattern.size() > kMaxPatternBytes || pattern.find_first_of(" \t\r\n{}") != std::string_view::npos) return invalid;
  PartsPattern out;
  const auto text = lowered(pattern);
  for (const auto part : split(text, '.')) {
    if (part.empty() || !well_formed(part)) return invalid;
    out.parts_.emplace_back(part);
  }
  if (std::count(out.parts_.begin(), out.parts_.end(), "**") > static_cast<std::ptrdiff_t>(kMaxCrossing)) return invalid;
  return out;
}

absl::StatusOr<PartsPattern> PartsPattern::path(std::string_view pattern) {
  PartsPattern out;
  out.separator_ = '/';
  if (pattern.empty() || pattern == "**" || pattern == "/**") {
    out.everything_ = true;
    return out;
  }
  const auto invalid = absl::InvalidArgumentError(fmt::format("'{}' is not a path pattern", pattern));
  if (pattern.size() > kMaxPatternBytes || pattern.front() != '/') return invalid;
  for (const auto part : split(pattern.substr(1), '/')) {
    if (!well_formed(part)) return invalid;
    out.parts_.emplace_back(part);
  }
  if (std::count(out.parts_.begin(), out.parts_.end(), "**") > static_cast<std::ptrdiff_t>(kMaxCrossing)) return invalid;
  return out;
}

bool PartsPattern::matches_from(std::size_t part, const std::vector<std::string_view>& text, std::size_t at) const {
  for (; part < parts_.size(); ++part, ++at) {
    if (parts_[part] == "**") {
      for (std::size_t next = at + 1; next <= text.size(); ++next) {
        if (matches_from(part + 1, text, next)) return true;
      }
      return false;
    }
    if (at == text.size() || !part_matches(parts_[part], text[at])) return false;
  }
  return at == text.size();
}

bool PartsPattern::matches(std::string_view text) const {
  if (everything_) return true;
  std::string lower;
  if (separator_ == '.') {
    lower = lowered(text);
    text = lower;
  } else if (text.starts_with('/')) {
    text.remove_prefix(1);
  }
  return matches_from(0, split(text, separator_), 0);
}

}  // namespace openshell::egress
