#include "egress/credentials/rewrite.hpp"

#include <algorithm>

#include <absl/strings/escaping.h>

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

class HeadResolver {
 public:
  HeadResolver(const CredentialTable& table, const CredentialScope& scope, CredentialTable::Now now)
      : table_{table}, scope_{scope}, now_{now} {}

  absl::StatusOr<std::string> value(const std::string& text) {
    if (const auto basic = basic_text(text); basic && has_marker(*basic)) return basic_value(*basic);
    if (const auto whole = parse_placeholder(text)) return one(*whole);
    const auto space = text.find_first_of(" \t");
    if (space == std::string::npos) return unresolved();
    const auto rest = text.find_first_not_of(" \t", space);
    const auto token = rest == std::string::npos ? std::nullopt : parse_placeholder(std::string_view{text}.substr(rest));
    if (!token || has_marker(std::string_view{text}.substr(0, space))) return unresolved();
    auto secret = one(*token);
    if (!secret.ok()) return secret;
    return text.substr(0, space + 1) + *secret;
  }

  [[nodiscard]] UsedCredentials take() { return std::move(used_); }

 private:
  absl::StatusOr<std::string> one(const Placeholder& token) {
    auto secret = table_.resolve(token, scope_, now_);
    if (!secret.ok()) return secret.status();
    if (std::find(used_.keys.begin(), used_.keys.end(), token.key) == used_.keys.end()) used_.keys.push_back(token.key);
    std::string out{secret->reveal()};
    used_.texts.push_back(std::move(*secret));
    return out;
  }

  absl::StatusOr<std::string> basic_value(const std::string& decoded) {
    const auto tokens = find_placeholders(decoded);
    if (!tokens) return unresolved();
    std::string out;
    std::size_t from = 0;
    for (const auto& token : *tokens) {
      auto secret = one(token);
      if (!secret.ok()) return secret;
      out.append(decoded, from, token.begin - from).append(*secret);
      from = token.begin + token.length;
    }
    out.append(decoded, from);
    if (tokens->empty()) return unresolved();  // a marker that only percent-decoding shows
    std::string encoded;
    absl::Base64Escape(out, &encoded);
    wipe(out);
    used_.texts.emplace_back(encoded);
    return "Basic " + encoded;
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
  for (auto& field : next.fields.all()) {
    if (!field_has_marker(field)) continue;
    if (!http::equal_ignoring_case(field.name, "authorization")) return unresolved();
    auto value = resolver.value(field.value);
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
