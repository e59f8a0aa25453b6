#include "policy/rego/builtins_strings.hpp"

#include "policy/rego/builtins_sprintf.hpp"
#include "policy/text.hpp"

#include <algorithm>
#include <clocale>
#include <cwctype>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;
using Arguments = std::span<const Value>;

absl::Status strings(Arguments a, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!a[i].is_string()) return operand_error(i + 1, "string", a[i]);
  }
  return absl::OkStatus();
}

/// Bytes of the character at `at`; a broken byte is one of its own.
std::size_t width(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  std::size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  length = std::min(length, text.size() - at);
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0U) != 0x80U) return 1;
  }
  return length;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = width(text, at);
    all.push_back(text.substr(at, length));
    at += length;
  }
  return all;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += width(text, at)) ++count;
  return count;
}

wint_t decoded(std::string_view c) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(c[i])); };
  switch (c.size()) {
    case 1:
      return byte(0);
    case 2:
      return ((byte(0) & 0x1FU) << 6) | (byte(1) & 0x3FU);
    case 3:
      return ((byte(0) & 0x0FU) << 12) | ((byte(1) & 0x3FU) << 6) | (byte(2) & 0x3FU);
    default:
      return ((byte(0) & 0x07U) << 18) | ((byte(1) & 0x3FU) << 12) | ((byte(2) & 0x3FU) << 6) | (byte(3) & 0x3FU);
  }
}

void encode(std::string& out, wint_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
    return;
  }
  const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  static constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[more] | (point >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80U | ((point >> (6 * i)) & 0x3FU));
}

template <bool Upper>
BuiltinResult cased(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 1); !status.ok()) return status;
  static const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const auto text = a[0].text();
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = width(text, at);
    const char c = text[at];
    if (length == 1) {
      out += Upper ? (c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c) : (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
    } else if (unicode == nullptr) {
      out += text.substr(at, length);
    } else {
      const wint_t point = decoded(text.substr(at, length));
      encode(out, Upper ? towupper_l(point, unicode) : towlower_l(point, unicode));
    }
    at += length;
  }
  return Value::string(out);
}

BuiltinResult joined(QueryContext& context, Arguments a) {
  if (!a[0].is_string()) return operand_error(1, "string", a[0]);
  if (!a[1].is_array() && !a[1].is_set()) return operand_error(2, "one of {array, set}", a[1]);
  std::string out;
  bool first = true;
  for (const auto& item : a[1].items()) {
    if (!item.is_string())
      return absl::InvalidArgumentError(cat("operand 2 must be ", kind_name(a[1].kind()), " of strings but got ", kind_name(a[1].kind()),
                                            " containing ", kind_name(item.kind())));
    if (!first) out += a[0].text();
    first = false;
    out += item.text();
    if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  }
  if (auto status = context.charge(a[1].size() / 8); !status.ok()) return status;
  return Value::string(out);
}

BuiltinResult contains(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  return Value::boolean(a[0].text().find(a[1].text()) != std::string_view::npos);
}

BuiltinResult starts_with(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  return Value::boolean(a[0].text().starts_with(a[1].text()));
}

BuiltinResult ends_with(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  return Value::boolean(a[0].text().ends_with(a[1].text()));
}

/// One string, or an array or set of them.
absl::StatusOr<std::vector<std::string_view>> several(Arguments a, std::size_t i) {
  std::vector<std::string_view> all;
  if (a[i].is_string()) return std::vector<std::string_view>{a[i].text()};
  if (!a[i].is_array() && !a[i].is_set()) return operand_error(i + 1, "one of {string, set, array}", a[i]);
  for (const auto& item : a[i].items()) {
    if (!item.is_string())
      return absl::InvalidArgumentError(cat("operand ", i + 1, " must be ", kind_name(a[i].kind()), " of strings but got ",
                                            kind_name(a[i].kind()), " containing ", kind_name(item.kind())));
    all.push_back(item.text());
  }
  return all;
}

template <bool Prefix>
BuiltinResult any_match(QueryContext& context, Arguments a) {
  const auto texts = several(a, 0);
  if (!texts.ok()) return texts.status();
  const auto parts = several(a, 1);
  if (!parts.ok()) return parts.status();
  if (auto status = context.charge(texts->size() * parts->size() / 8); !status.ok()) return status;
  for (const auto text : *texts) {
    for (const auto part : *parts) {
      if (Prefix ? text.starts_with(part) : text.ends_with(part)) return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

BuiltinResult index_of(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  if (a[1].text().empty()) return absl::UnknownError("empty search character");
  const auto at = a[0].text().find(a[1].text());
  return Value::integer(at == std::string_view::npos ? -1 : static_cast<std::int64_t>(count_characters(a[0].text().substr(0, at))));
}

BuiltinResult indexes_of(QueryContext& context, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  const auto text = a[0].text();
  if (a[1].text().empty()) return absl::UnknownError("empty search character");
  std::vector<Value> found;
  std::int64_t index = 0;
  for (std::size_t at = 0; at < text.size(); at += width(text, at), ++index) {
    if (!text.substr(at).starts_with(a[1].text())) continue;
    found.push_back(Value::integer(index));
    if (auto status = context.room_for(found.size()); !status.ok()) return status;
  }
  return Value::array(std::move(found));
}

BuiltinResult counted(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  const auto text = a[0].text();
  if (a[1].text().empty()) return Value::integer(static_cast<std::int64_t>(count_characters(text)) + 1);
  std::int64_t count = 0;
  for (std::size_t at = text.find(a[1].text()); at != std::string_view::npos; at = text.find(a[1].text(), at + a[1].text().size())) ++count;
  return Value::integer(count);
}

BuiltinResult replaced(QueryContext& context, Arguments a) {
  if (auto status = strings(a, 3); !status.ok()) return status;
  const auto text = a[0].text();
  const auto from = a[1].text();
  std::string out;
  if (from.empty()) {
    for (const auto c : characters(text)) {
      out += a[2].text();
      out += c;
      if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
    }
    out += a[2].text();
    return Value::string(out);
  }
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    out += text.substr(at, found - at);
    out += a[2].text();
    at = found + from.size();
    if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  }
  return Value::string(out + std::string(text.substr(at)));
}

BuiltinResult replaced_all(QueryContext& context, Arguments a) {
  if (!a[0].is_object()) return operand_error(1, "object", a[0]);
  if (!a[1].is_string()) return operand_error(2, "string", a[1]);
  for (const auto& member : a[0].members()) {
    if (!member.key.is_string()) return absl::InvalidArgumentError("operand 1 non-string key found in pattern object");
    if (!member.value.is_string()) return absl::InvalidArgumentError("operand 1 non-string value found in pattern object");
  }
  const auto text = a[1].text();
  if (auto status = context.charge(text.size() * (1 + a[0].size()) / 16); !status.ok()) return status;
  std::string out;
  for (std::size_t at = 0; at <= text.size();) {
    const Member* hit = nullptr;
    for (const auto& member : a[0].members()) {
      if (text.substr(at).starts_with(member.key.text())) {
        hit = &member;
        break;
      }
    }
    if (hit != nullptr) out += hit->value.text();
    if (hit != nullptr && hit->key.text().size() > 0) {
      at += hit->key.text().size();
    } else {
      if (at < text.size()) out += text[at];
      ++at;
    }
    if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  }
  return Value::string(out);
}

BuiltinResult reversed(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 1); !status.ok()) return status;
  const auto all = characters(a[0].text());
  std::string out;
  for (auto c = all.rbegin(); c != all.rend(); ++c) out += *c;
  return Value::string(out);
}

BuiltinResult split(QueryContext& context, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  const auto text = a[0].text();
  const auto mark = a[1].text();
  std::vector<Value> parts;
  const auto add = [&](std::string_view part) {
    parts.push_back(Value::string(part));
    return context.room_for(parts.size());
  };
  if (mark.empty()) {
    for (const auto c : characters(text)) {
      if (auto status = add(c); !status.ok()) return status;
    }
    return Value::array(std::move(parts));
  }
  std::size_t at = 0;
  for (std::size_t found = text.find(mark); found != std::string_view::npos; found = text.find(mark, at)) {
    if (auto status = add(text.substr(at, found - at)); !status.ok()) return status;
    at = found + mark.size();
  }
  if (auto status = add(text.substr(at)); !status.ok()) return status;
  if (auto status = context.charge(parts.size() / 8); !status.ok()) return status;
  return Value::array(std::move(parts));
}

BuiltinResult substring(QueryContext& /*context*/, Arguments a) {
  if (!a[0].is_string()) return operand_error(1, "string", a[0]);
  for (std::size_t i = 1; i < 3; ++i) {
    if (!a[i].is_number()) return operand_error(i + 1, "number", a[i]);
    if (!a[i].as_integer())
      return absl::InvalidArgumentError(cat("operand ", i + 1, " must be integer number but got floating-point number"));
  }
  const std::int64_t from = *a[1].as_integer();
  const std::int64_t length = *a[2].as_integer();
  if (from < 0) return absl::UnknownError("negative offset");
  const auto text = a[0].text();
  std::size_t begin = 0;
  for (std::int64_t i = 0; i < from && begin < text.size(); ++i) begin += width(text, begin);
  if (length < 0) return Value::string(text.substr(begin));
  std::size_t end = begin;
  for (std::int64_t i = 0; i < length && end < text.size(); ++i) end += width(text, end);
  return Value::string(text.substr(begin, end - begin));
}

bool is_space(std::string_view c) {
  if (c.size() == 1) return c == " " || (c[0] >= '\t' && c[0] <= '\r');
  const wint_t point = decoded(c);
  return point == 0x85 || point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

template <typename Drop>
Value trimmed(std::string_view text, bool left, bool right, const Drop& drop) {
  const auto all = characters(text);
  std::size_t begin = 0;
  std::size_t end = all.size();
  while (left && begin < end && drop(all[begin])) ++begin;
  while (right && end > begin && drop(all[end - 1])) --end;
  if (begin == end) return Value::string("");
  return Value::string({all[begin].data(), static_cast<std::size_t>(all[end - 1].data() + all[end - 1].size() - all[begin].data())});
}

template <bool Left, bool Right>
BuiltinResult trim(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  const auto cut = characters(a[1].text());
  return trimmed(a[0].text(), Left, Right, [&](std::string_view c) { return std::find(cut.begin(), cut.end(), c) != cut.end(); });
}

BuiltinResult trim_space(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 1); !status.ok()) return status;
  return trimmed(a[0].text(), true, true, is_space);
}

BuiltinResult trim_prefix(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  return a[0].text().starts_with(a[1].text()) ? Value::string(a[0].text().substr(a[1].text().size())) : a[0];
}

BuiltinResult trim_suffix(QueryContext& /*context*/, Arguments a) {
  if (auto status = strings(a, 2); !status.ok()) return status;
  return a[0].text().ends_with(a[1].text()) ? Value::string(a[0].text().substr(0, a[0].text().size() - a[1].text().size())) : a[0];
}

BuiltinResult formatted(QueryContext& context, Arguments a) {
  if (!a[0].is_string()) return operand_error(1, "string", a[0]);
  if (!a[1].is_array()) return operand_error(2, "array", a[1]);
  return format_values(context, a[0].text(), a[1].items());
}

}  // namespace

const BuiltinTable& string_builtins() {
  using namespace types;
  static const Type list = any_of({array_of(string()), set_of(string())});
  static const Type one_or_more = any_of({string(), array_of(string()), set_of(string())});
  static const BuiltinTable table = {
      {"concat", {string(), list}, string(), joined},
      {"contains", {string(), string()}, boolean(), contains},
      {"startswith", {string(), string()}, boolean(), starts_with},
      {"endswith", {string(), string()}, boolean(), ends_with},
      {"strings.any_prefix_match", {one_or_more, one_or_more}, boolean(), any_match<true>},
      {"strings.any_suffix_match", {one_or_more, one_or_more}, boolean(), any_match<false>},
      {"indexof", {string(), string()}, number(), index_of},
      {"indexof_n", {string(), string()}, array_of(number()), indexes_of},
      {"strings.count", {string(), string()}, number(), counted},
      {"lower", {string()}, string(), cased<false>},
      {"upper", {string()}, string(), cased<true>},
      {"replace", {string(), string(), string()}, string(), replaced},
      {"strings.replace_n", {object_of(string(), string()), string()}, string(), replaced_all},
      {"strings.reverse", {string()}, string(), reversed},
      {"split", {string(), string()}, array_of(string()), split},
      {"substring", {string(), number(), number()}, string(), substring},
      {"trim", {string(), string()}, string(), trim<true, true>},
      {"trim_left", {string(), string()}, string(), trim<true, false>},
      {"trim_right", {string(), string()}, string(), trim<false, true>},
      {"trim_space", {string()}, string(), trim_space},
      {"trim_prefix", {string(), string()}, string(), trim_prefix},
      {"trim_suffix", {string(), string()}, string(), trim_suffix},
      {"sprintf", {string(), array_of(any())}, string(), formatted},
  };
  return table;
}

}  // namespace openshell::policy::rego
