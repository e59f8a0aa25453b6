#include "egress/credentials/rewrite.hpp"

#include <algorithm>

#include <absl/strings/escaping.h>

#include "egress/http/target.hpp"

namespace openshell::egress {
namespace {

constexpr std::size_t kShortestMasked = 4;  // shorter secrets would mask ordinary words

absl::Status unresolved() { return absl::FailedPreconditionError("credential placeholder could not be resolved in header"); }

std::optional<std::string> basic_text(std::string_view value) {
  if (value.size() < 6 || !http::equal_ignoring_case(value.substr(0, 6), "basic ")) return std::nullopt;
  value.remove_prefix(6);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  std::string out;
  if (!absl::Base64Unescape({value.data(), value.size()}, &out)) return std::nullopt;
  return out;
}

bool field_has_marker(const http::Field& field) {
  if (has_marker(field.name) || has_marker(field.value)) return true;
  const auto basic = basic_text(field.value);
  return basic && has_marker(*basic);
}

std::string percent_encoded(std::string_view text, std::string_view literal) {
  std::string out;
  http::percent_encode(out, text, literal);
  return out;
}

// RFC 3986: what stays literal in a query value and in a path segment.
constexpr std::string_view kUnreserved = "-._~";
constexpr std::string_view kSegmentLiteral = "-._~!$&'()*+,;=:@";

/// A secret that would change which path a request has is no path segment.
bool fits_a_segment(std::string_view secret) {
  return !secret.empty() && secret != "." && secret.find("..") == std::string_view::npos &&
         secret.find_first_of(std::string_view{"/\\?#\r\n\0", 7}) == std::string_view::npos;
}

class HeadResolver {
 public:
  HeadResolver(const CredentialTable& table, const CredentialScope& scope, CredentialTable::Now now)
      : table_{table}, scope_{scope}, now_{now} {}

  absl::StatusOr<std::string> header(std::string_view name, const std::string& text) {
    const auto placed = [this, name](const Placeholder& token) { return table_.placed_in_header(token.key, name); };
    if (const auto basic = basic_text(text); basic && has_marker(*basic)) {
      auto out = spliced(*basic, placed);
      if (!out.ok()) return out;
      std::string encoded;
      absl::Base64Escape(*out, &encoded);
      wipe(*out);
      used_.texts.emplace_back(encoded);
      return "Basic " + encoded;
    }
    if (const auto whole = parse_placeholder(text)) return one(*whole, placed);
    const auto space = text.find_first_of(" \t");
    if (space == std::string::npos) return unresolved();
    const auto rest = text.find_first_not_of(" \t", space);
    const auto token = rest == std::string::npos ? std::nullopt : parse_placeholder(std::string_view{text}.substr(rest));
    if (!token || has_marker(std::string_view{text}.substr(0, space))) return unresolved();
    auto secret = one(*token, placed);
    if (!secret.ok()) return secret;
    return text.substr(0, space + 1) + *secret;
  }

  absl::StatusOr<std::string> target(std::string_view text) {
    const auto question = text.find('?');
    auto out = path(text.substr(0, question));
    if (!out.ok() || question == std::string_view::npos) return out;
    auto rest = query(text.substr(question + 1));
    if (!rest.ok()) return rest;
    return *out + '?' + *rest;
  }

  [[nodiscard]] UsedCredentials take() { return std::move(used_); }

 private:
  absl::StatusOr<std::string> path(std::string_view text) {
    if (!has_marker(text)) return std::string{text};
    const auto tokens = find_placeholders(text);
    if (!tokens || tokens->size() != 1) return unresolved();  // one slot, and none that only percent-decoding shows
    const auto& token = tokens->front();
    const auto before = text.substr(0, token.begin), after = text.substr(token.begin + token.length);
    auto slotted = std::string{before} + CredentialTable::kPathSlot + std::string{after};
    auto secret = one(token, [&](const Placeholder& placed) { return table_.placed_in_path(placed.key, slotted); });
    if (!secret.ok()) return secret;
    if (!fits_a_segment(*secret)) return unresolved();
    return std::string{before} + written(percent_encoded(*secret, kSegmentLiteral)) + std::string{after};
  }

  absl::StatusOr<std::string> query(std::string_view text) {
    std::string out;
    while (true) {
      const auto ampersand = text.find('&');
      const auto pair = text.substr(0, ampersand);
      const auto equals = pair.find('=');
      const auto value = equals == std::string_view::npos ? std::string_view{} : pair.substr(equals + 1);
      if (has_marker(pair.substr(0, equals))) return unresolved();
      if (has_marker(value)) {
        const auto name = http::percent_decode(pair.substr(0, equals), true);
        const auto decoded = http::percent_decode(value, true);
        if (!name || !decoded) return unresolved();
        auto resolved = spliced(*decoded, [&](const Placeholder& token) { return table_.placed_in_query(token.key, *name); });
        if (!resolved.ok()) return resolved;
        out.append(pair.substr(0, equals + 1)).append(written(percent_encoded(*resolved, kUnreserved)));
        wipe(*resolved);
      } else {
        out.append(pair);
      }
      if (ampersand == std::string_view::npos) return out;
      out.push_back('&');
      text.remove_prefix(ampersand + 1);
    }
  }

  /// `text` with every placeholder resolved.
  template <class Placed>
  absl::StatusOr<std::string> spliced(const std::string& text, const Placed& placed) {
    const auto tokens = find_placeholders(text);
    if (!tokens || tokens->empty()) return unresolved();  // malformed, or a marker that only percent-decoding shows
    std::string out;
    std::size_t from = 0;
    for (const auto& token : *tokens) {
      auto secret = one(token, placed);
      if (!secret.ok()) return secret;
      out.append(text, from, token.begin - from).append(*secret);
      from = token.begin + token.length;
    }
    return out.append(text, from);
  }

  template <class Placed>
  absl::StatusOr<std::string> one(const Placeholder& token, const Placed& placed) {
    auto secret = table_.resolve(token, scope_, now_);
    if (!secret.ok()) return secret.status();
    if (!placed(token)) return absl::FailedPreconditionError(kNotDeclared.data());
    if (std::find(used_.keys.begin(), used_.keys.end(), token.key) == used_.keys.end()) used_.keys.push_back(token.key);
    std::string out{secret->reveal()};
    used_.texts.push_back(std::move(*secret));
    return out;
  }

  /// Remembers a form in which a secret goes out.
  std::string written(std::string text) {
    used_.texts.emplace_back(text);
    return text;
  }

  const CredentialTable& table_;
  const CredentialScope& scope_;
  CredentialTable::Now now_;
  UsedCredentials used_;
};

}  // namespace

bool head_has_marker(const http::RequestHead& head) {
  return has_marker(head.target) || std::any_of(head.fields.all().begin(), head.fields.all().end(), field_has_marker);
}

absl::StatusOr<UsedCredentials> resolve_head(http::RequestHead& head, const CredentialTable* table, const CredentialScope& scope,
                                             CredentialTable::Now now) {
  if (!head_has_marker(head)) return UsedCredentials{};
  if (table == nullptr) return unresolved();
  HeadResolver resolver{*table, scope, now};
  http::RequestHead next = head;
  if (has_marker(next.target)) {
    auto target = resolver.target(next.target);
    if (!target.ok()) return target.status();
    next.target = std::move(*target);
  }
  for (auto& field : next.fields.all()) {
    if (!field_has_marker(field)) continue;
    if (has_marker(field.name)) return unresolved();
    auto value = resolver.header(field.name, field.value);
    if (!value.ok()) return value.status();
    field.value = std::move(*value);
  }
  if (head_has_marker(next)) return unresolved();
  head = std::move(next);
  return resolver.take();
}

bool mask_head(http::ResponseHead& head, const UsedCredentials& used) {
  bool masked = false;
  const auto mask = [&](std::string& text) {
    for (const auto& secret : used.texts) {
      const auto needle = secret.reveal();
      if (needle.size() < kShortestMasked) continue;
      for (auto at = text.find(needle); at != std::string::npos; at = text.find(needle, at + kRedacted.size())) {
        text.replace(at, needle.size(), kRedacted);
        masked = true;
      }
    }
  };
  mask(head.reason);
  for (auto& field : head.fields.all()) mask(field.value);
  return masked;
}

}  // namespace openshell::egress
