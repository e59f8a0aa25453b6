#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/number.hpp"
#include "policy/rego/operands.hpp"

#include <openssl/rand.h>

#include <array>
#include <cmath>
#include <optional>

namespace openshell::policy::rego {
namespace {

// Amounts with units.

struct Amount {
  std::string number;  ///< JSON number, or empty where it is none.
  std::string unit;
};

/// `units.parse` keeps what follows the first letter as the unit, but an exponent belongs to the number.
Amount split_amount(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {
    const auto begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at != begin;
  };
  while (at < text.size() && ((text[at] >= '0' && text[at] <= '9') || text[at] == '.' || text[at] == '-' || text[at] == '+')) ++at;
  if (at > 0 && at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const auto before = at++;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) at = before;
  }
  return {std::string(text.substr(0, at)), std::string(text.substr(at))};
}

/// The text as JSON spells numbers: no plus, a digit on each side of the point.
std::optional<Value> number_of(std::string_view text) {
  std::string out;
  if (text.starts_with("+") || text.starts_with("-")) {
    if (text[0] == '-') out = "-";
    text.remove_prefix(1);
  }
  const auto exponent = text.find_first_of("eE");
  auto mantissa = text.substr(0, exponent);
  const auto point = mantissa.find('.');
  auto whole = mantissa.substr(0, point);
  auto fraction = point == std::string_view::npos ? std::string_view{} : mantissa.substr(point + 1);
  if (whole.empty() && fraction.empty()) return std::nullopt;
  while (whole.size() > 1 && whole[0] == '0') whole.remove_prefix(1);
  out += whole.empty() ? "0" : whole;
  if (!fraction.empty()) out += text::cat(".", fraction);
  if (exponent != std::string_view::npos) out += text.substr(exponent);
  Value value = Value::number(out);
  if (!value.is_defined()) return std::nullopt;
  return value;
}

constexpr std::string_view kScales = "kmgtpe";

/// 1000 or 1024 to the power that the letter stands for.
std::optional<std::int64_t> scale(char letter, std::int64_t base) {
  const auto place = kScales.find(letter);
  if (place == std::string_view::npos) return std::nullopt;
  std::int64_t out = 1;
  for (std::size_t i = 0; i <= place; ++i) out *= base;
  return out;
}

std::string without_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '"') out += c;
  }
  return out;
}

/// As short as it can be: 3.000 is 3.
Value tidy(const Value& number) {
  if (const auto integer = big_integer(number)) return Number::from(*integer);
  return Number::from(approximate(number));
}

BuiltinResult units_parse(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const std::string text = without_quotes(a[0].text());
  if (text.find(' ') != std::string::npos) return failure("units.parse: spaces not allowed in resource strings");
  const Amount amount = split_amount(text);
  if (amount.number.empty()) return failure("units.parse: no amount provided");
  std::string unit = amount.unit;
  std::int64_t factor = 1;
  bool milli = false;
  if (unit == "m") {
    milli = true;
  } else if (!unit.empty()) {
    const std::string lower = text::lower(unit);
    const bool binary = lower.size() == 2 && lower[1] == 'i';
    const auto found = lower.size() == 1 || binary ? scale(lower[0], binary ? 1024 : 1000) : std::nullopt;
    if (!found) return failure("units.parse: unit ", unit, " not recognized");
    factor = *found;
  }
  const auto number = number_of(amount.number);
  if (!number) return failure("units.parse: could not parse amount to a number");
  if (milli) return divide(*number, Value::integer(1000));
  const auto product = multiply(*number, Value::integer(factor));
  if (!product.ok()) return product.status();
  return tidy(*product);
}

BuiltinResult units_parse_bytes(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const std::string text = text::lower(without_quotes(a[0].text()));
  if (text.find(' ') != std::string::npos) return failure("units.parse_bytes: spaces not allowed in resource strings");
  const Amount amount = split_amount(text);
  if (amount.number.empty()) return failure("units.parse_bytes: no byte amount provided");
  std::string_view unit = amount.unit;
  std::int64_t factor = 1;
  if (!unit.empty()) {
    const bool binary = unit.size() > 1 && unit[1] == 'i';
    const auto rest = unit.substr(binary ? 2 : 1);
    const auto found = rest.empty() || rest == "b" ? scale(unit[0], binary ? 1024 : 1000) : std::nullopt;
    if (!found) return failure("units.parse_bytes: byte unit ", unit, " not recognized");
    factor = *found;
  }
  const auto number = number_of(amount.number);
  if (!number) return failure("units.parse_bytes: could not parse byte amount to a number");
  const auto product = multiply(*number, Value::integer(factor));
  if (!product.ok()) return product.status();
  if (const auto whole = big_integer(*product)) return Number::from(*whole);
  return Number::from(BigInteger(std::trunc(approximate(*product))));
}

// Versions (Semantic Versioning 2.0.0), with a leading v allowed.

struct Version {
  std::array<std::string_view, 3> numbers;
  std::vector<std::string_view> stage;
};

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

bool is_identifier(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == std::string_view::npos;
}

bool has_leading_zero(std::string_view number) { return number.size() > 1 && number[0] == '0'; }

std::optional<Version> parse_version(std::string_view text) {
  if (text.starts_with("v")) text.remove_prefix(1);
  if (const auto plus = text.find('+'); plus != std::string_view::npos) {
    for (const auto part : split_at(text.substr(plus + 1), '.')) {
      if (!is_identifier(part)) return std::nullopt;
    }
    text = text.substr(0, plus);
  }
  Version version;
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    version.stage = split_at(text.substr(dash + 1), '.');
    for (const auto part : version.stage) {
      if (!is_identifier(part) || (is_number(part) && has_leading_zero(part))) return std::nullopt;
    }
    text = text.substr(0, dash);
  }
  const auto numbers = split_at(text, '.');
  if (numbers.size() != 3) return std::nullopt;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!is_number(numbers[i]) || has_leading_zero(numbers[i])) return std::nullopt;
    version.numbers[i] = numbers[i];
  }
  return version;
}

/// Below, at or above zero; numbers without leading zeros compare by length first.
int compare_numbers_text(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  const int order = a.compare(b);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

int compare_stage(std::string_view a, std::string_view b) {
  if (is_number(a) && is_number(b)) return compare_numbers_text(a, b);
  if (is_number(a) != is_number(b)) return is_number(a) ? -1 : 1;
  const int order = a.compare(b);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

int compare_versions(const Version& a, const Version& b) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (const int order = compare_numbers_text(a.numbers[i], b.numbers[i]); order != 0) return order;
  }
  if (a.stage.empty() || b.stage.empty()) return a.stage.empty() ? (b.stage.empty() ? 0 : 1) : -1;
  for (std::size_t i = 0; i < std::min(a.stage.size(), b.stage.size()); ++i) {
    if (const int order = compare_stage(a.stage[i], b.stage[i]); order != 0) return order;
  }
  return a.stage.size() == b.stage.size() ? 0 : a.stage.size() < b.stage.size() ? -1 : 1;
}

BuiltinResult semver_compare(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  std::array<std::optional<Version>, 2> versions;
  for (std::size_t i = 0; i < 2; ++i) {
    versions[i] = parse_version(a[i].text());
    if (!versions[i]) return failure("operand ", i + 1, ": string ", quoted(a[i].text()), " is not a valid SemVer");
  }
  return Value::integer(compare_versions(*versions[0], *versions[1]));
}

BuiltinResult semver_is_valid(QueryContext& /*context*/, Arguments a) {
  return Value::boolean(a[0].is_string() && parse_version(a[0].text()).has_value());
}

// UUIDs (RFC 4122).

using Uuid = std::array<std::uint8_t, 16>;

std::optional<Uuid> parse_uuid(std::string_view text) {
  if (text.size() == 45 && text::lower(text.substr(0, 9)) == "urn:uuid:") text.remove_prefix(9);
  if (text.size() == 38) text = text.substr(1, 36);
  std::string digits;
  if (text.size() == 36) {
    for (std::size_t i = 0; i < 36; ++i) {
      if (i == 8 || i == 13 || i == 18 || i == 23) {
        if (text[i] != '-') return std::nullopt;
      } else {
        digits += text[i];
      }
    }
  } else if (text.size() == 32) {
    digits = text;
  } else {
    return std::nullopt;
  }
  Uuid uuid{};
  for (std::size_t i = 0; i < 16; ++i) {
    const int high = hex_digit(digits[2 * i]);
    const int low = hex_digit(digits[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    uuid[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return uuid;
}

std::string_view variant(const Uuid& uuid) {
  const unsigned bits = uuid[8];
  if ((bits & 0xC0U) == 0x80) return "RFC4122";
  if ((bits & 0xE0U) == 0xC0) return "Microsoft";
  return (bits & 0xE0U) == 0xE0 ? "Future" : "Reserved";
}

std::int64_t big_endian(const Uuid& uuid, std::size_t at, std::size_t size) {
  std::int64_t out = 0;
  for (std::size_t i = 0; i < size; ++i) out = out << 8 | uuid[at + i];
  return out;
}

/// Nanoseconds since 1970 of a time-based one, which counts 100 ns from 1582-10-15.
Value uuid_time(const Uuid& uuid) {
  const std::int64_t ticks = big_endian(uuid, 0, 4) | big_endian(uuid, 4, 2) << 32 | (big_endian(uuid, 6, 2) & 0xFFF) << 48;
  constexpr std::int64_t kTo1970 = 122'192'928'000'000'000;
  return Number::from(BigInteger(ticks - kTo1970) * 100);
}

std::string node_text(const Uuid& uuid) {
  std::string out;
  for (std::size_t i = 10; i < 16; ++i) {
    const char byte = static_cast<char>(uuid[i]);
    out += text::cat(out.empty() ? "" : "-", hex_text({&byte, 1}));
  }
  return out;
}

BuiltinResult uuid_parse(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const auto uuid = parse_uuid(a[0].text());
  if (!uuid) return Value();
  const int version = (*uuid)[6] >> 4U;
  std::vector<Member> members;
  const auto add = [&](std::string_view key, Value value) { members.push_back({Value::string(key), std::move(value)}); };
  add("version", Value::integer(version));
  add("variant", Value::string(variant(*uuid)));
  if (version == 1 || version == 2) {
    const unsigned node = (*uuid)[10];
    add("time", uuid_time(*uuid));
    add("nodeid", Value::string(node_text(*uuid)));
    add("macvariables", Value::string(text::cat((node & 2U) != 0 ? "local" : "global", ":", (node & 1U) != 0 ? "multicast" : "unicast")));
    add("clocksequence", Value::integer(big_endian(*uuid, 8, 2) & 0x3FFF));
  }
  if (version == 2) {
    static constexpr std::array<std::string_view, 3> kDomains = {"Person", "Group", "Org"};
    const unsigned domain = (*uuid)[9];
    add("id", Value::integer(big_endian(*uuid, 0, 4)));
    add("domain", Value::string(domain < kDomains.size() ? std::string(kDomains[domain]) : text::cat("Domain", domain)));
  }
  return Value::object(std::move(members));
}

/// Random, and the same for one key within a query.
BuiltinResult uuid_random(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  auto& made = context.memory<absl::flat_hash_map<std::string, Value>>("uuid.rfc4122");
  Value& value = made[std::string(a[0].text())];
  if (value.is_defined()) return value;
  std::string bytes(16, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), 16) != 1) return failure("no randomness");
  bytes[6] = static_cast<char>((static_cast<unsigned char>(bytes[6]) & 0x0FU) | 0x40U);
  bytes[8] = static_cast<char>((static_cast<unsigned char>(bytes[8]) & 0x3FU) | 0x80U);
  std::string text = hex_text(bytes);
  for (const std::size_t at : {20U, 16U, 12U, 8U}) text.insert(at, "-");
  return value = Value::string(text);
}

}  // namespace

const BuiltinTable& name_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"semver.compare", {string(), string()}, number(), semver_compare},
      {"semver.is_valid", {any()}, boolean(), semver_is_valid},
      {"units.parse", {string()}, number(), units_parse},
      {"units.parse_bytes", {string()}, number(), units_parse_bytes},
      {"uuid.parse", {string()}, object_of(string(), any()), uuid_parse},
      {"uuid.rfc4122", {string()}, string(), uuid_random, true},
  };
  return table;
}

}  // namespace openshell::policy::rego
