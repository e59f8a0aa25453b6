// What the groups of built-ins share: the checks of their operands, and text by characters. Internal to the groups.
#pragma once

#include "policy/rego/builtins.hpp"
#include "policy/text.hpp"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace openshell::policy::rego {

using Arguments = std::span<const Value>;

/// Operands at these positions, counted from 0, are strings.
inline absl::Status need_strings(Arguments a, std::initializer_list<std::size_t> positions) {
  for (const std::size_t i : positions) {
    if (!a[i].is_string()) return operand_error(i + 1, "string", a[i]);
  }
  return absl::OkStatus();
}

/// An `eval_builtin_error`.
template <class... Parts>
absl::Status failure(const Parts&... parts) {
  return absl::UnknownError(text::cat(parts...));
}

/// An `eval_type_error`.
template <class... Parts>
absl::Status misuse(const Parts&... parts) {
  return absl::InvalidArgumentError(text::cat(parts...));
}

/// The text in double quotes with the escapes of JSON, which are those of Go for what occurs in messages.
inline std::string quoted(std::string_view bytes) {
  std::string out;
  append_json_string(out, bytes);
  return out;
}

inline std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const auto next = text.find(separator, at);
    parts.push_back(text.substr(at, next == std::string_view::npos ? next : next - at));
    if (next == std::string_view::npos) return parts;
    at = next + 1;
  }
}

/// Bytes of the character that begins at `at`: 1 where the bytes are no UTF-8.
inline std::size_t character_size(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t size = lead < 0x80 ? 1 : lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  if (at + size > text.size()) return 1;
  for (std::size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0U) != 0x80) return 1;
  }
  return size;
}

/// Charges for every part of a value as often as it occurs: parts may be shared, so that what is written out can be much larger than what
/// is held.
inline absl::Status charge_whole(QueryContext& context, const Value& value) {
  if (value.is_collection()) {
    if (auto status = context.charge(1 + value.size() / 8); !status.ok()) return status;
  }
  for (const auto& item : value.items()) {
    if (auto status = charge_whole(context, item); !status.ok()) return status;
  }
  for (const auto& member : value.members()) {
    if (auto status = charge_whole(context, member.key); !status.ok()) return status;
    if (auto status = charge_whole(context, member.value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

inline std::string hex_text(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    out += kDigits[static_cast<unsigned char>(byte) >> 4U];
    out += kDigits[static_cast<unsigned char>(byte) & 15U];
  }
  return out;
}

inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace openshell::policy::rego
