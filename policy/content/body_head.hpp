// What the head of a request says about its body, and whether the body is then JSON that every reader decodes alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy {

/// Values of the fields as sent, in their order. Borrowed for the call.
struct BodyHead {
  std::vector<std::string_view> content_type;
  std::vector<std::string_view> content_encoding;
};

/// Empty where the body is uncompressed UTF-8 JSON: no content coding but identity, and no charset but UTF-8; with `typed` also exactly one
/// Content-Type, `application/json` or `application/*+json`. Else what is wrong.
[[nodiscard]] std::string json_body_fault(const BodyHead& head, bool typed);

/// True where `key` is one of `known` but for the case of its letters. A reader that ignores case would take it for that key.
template <class Known>
bool differs_in_case(std::string_view key, const Known& known) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  for (const std::string_view name : known) {
    if (key.size() != name.size() || key == name) continue;
    bool same = true;
    for (std::size_t i = 0; i < key.size() && same; ++i) same = lower(key[i]) == lower(name[i]);
    if (same) return true;
  }
  return false;
}

}  // namespace openshell::policy
