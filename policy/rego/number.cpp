#include "policy/rego/number.hpp"

#include "policy/rego/value_parts.hpp"
#include "policy/text.hpp"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace openshell::policy::rego {

using openshell::policy::text::cat;
namespace {

/// Digits an integer may be spelled with an exponent for; beyond it the number is reckoned as a decimal.
constexpr long kMaxExponentDigits = 40'000;

absl::Status too_large() { return absl::ResourceExhaustedError("limit exceeded: digits of an integer"); }

struct Spelling {
  bool negative = false;
  std::string digits;  ///< Without the point.
  long fraction = 0;   ///< Digits after the point.
  long exponent = 0;
};

/// What RFC 8259 calls a number, or nothing.
std::optional<Spelling> read(std::string_view text) {
  Spelling made;
  std::size_t at = 0;
  const auto digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  if (at < text.size() && text[at] == '-') {
    made.negative = true;
    ++at;
  }
  if (!digit()) return std::nullopt;
  if (text[at] == '0' && at + 1 < text.size() && text[at + 1] >= '0' && text[at + 1] <= '9') return std::nullopt;
  while (digit()) made.digits += text[at++];
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digit()) return std::nullopt;
    while (digit()) {
      made.digits += text[at++];
      ++made.fraction;
    }
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    bool negative = false;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) negative = text[at++] == '-';
    if (!digit()) return std::nullopt;
    while (digit()) {
      if (made.exponent < 1'000'000) made.exponent = made.exponent * 10 + (text[at] - '0');
      ++at;
    }
    if (negative) made.exponent = -made.exponent;
  }
  if (at != text.size()) return std::nullopt;
  return made;
}

/// The integer a spelling names: digits * 10^(exponent - fraction).
std::optional<BigInteger> integer_of(const Spelling& spelling) {
  std::string digits = spelling.digits;
  long shift = spelling.exponent - spelling.fraction;
  while (shift < 0 && digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++shift;
  }
  if (digits.find_first_not_of('0') == std::string::npos) return BigInteger(0);
  if (shift < 0 || shift > kMaxExponentDigits || digits.size() > static_cast<std::size_t>(kMaxExponentDigits)) return std::nullopt;
  digits.append(static_cast<std::size_t>(shift), '0');
  digits.erase(0, digits.find_first_not_of('0'));  // a leading zero would mean octal
  BigInteger value(digits);
  return spelling.negative ? BigInteger(-value) : value;
}

/// The fewest digits that name `value` among numbers of 64 bits of mantissa, as `%g` with at most `digits` writes them.
std::string shortest(long double value) {
  char buffer[64];
  int digits = 1;
  for (; digits < 21; ++digits) {
    std::snprintf(buffer, sizeof buffer, "%.*Le", digits - 1, value);
    if (std::strtold(buffer, nullptr) == value) break;
  }
  std::snprintf(buffer, sizeof buffer, "%.*Le", digits - 1, value);
  const std::string spelled = buffer;
  const long exponent = std::strtol(spelled.c_str() + spelled.find('e') + 1, nullptr, 10);
  if (exponent < -4 || exponent >= 6) return spelled;
  std::snprintf(buffer, sizeof buffer, "%.*Lf", static_cast<int>(std::max(0L, digits - 1 - exponent)), value);
  return buffer;
}

bool both_small(const Value& a, const Value& b) { return a.is_small_integer() && b.is_small_integer(); }

absl::StatusOr<Value> finished(const BigInteger& integer) {
  if (integer != 0 && boost::multiprecision::msb(boost::multiprecision::abs(integer)) > kMaxIntegerBits) return too_large();
  return Number::from(integer);
}

absl::StatusOr<Value> finished(long double value) {
  Value made = Number::from(value);
  if (!made.is_defined()) return absl::UnknownError("number out of range");
  return made;
}

/// Both as integers where both are.
std::optional<std::pair<BigInteger, BigInteger>> integers(const Value& a, const Value& b) {
  auto left = big_integer(a);
  if (!left) return std::nullopt;
  auto right = big_integer(b);
  if (!right) return std::nullopt;
  return std::pair(std::move(*left), std::move(*right));
}

}  // namespace

Value Number::parse(std::string_view text) {
  std::int64_t small = 0;
  if (text.size() < 19 && !text.empty() && text.find_first_of(".eE+ \t\n") == std::string_view::npos && text != "-0" &&
      (text[0] != '0' || text.size() == 1) && !text.starts_with("-0") &&
      std::from_chars(text.data(), text.data() + text.size(), small).ptr == text.data() + text.size()) {
    return Value::integer(small);
  }
  const auto spelling = read(text);
  if (!spelling) return {};
  Number made;
  made.integer_ = integer_of(*spelling);
  const bool plain = text.find_first_of(".eE") == std::string_view::npos && text != "-0";
  if (plain && made.integer_ && *made.integer_ <= INT64_MAX && *made.integer_ >= INT64_MIN) {
    return Value::integer(static_cast<std::int64_t>(*made.integer_));
  }
  made.text_ = std::string(text);
  made.approximate_ = std::strtold(made.text_.c_str(), nullptr);
  return Value::large(std::move(made));
}

Value Number::from(const BigInteger& integer) {
  if (integer <= INT64_MAX && integer >= INT64_MIN) return Value::integer(static_cast<std::int64_t>(integer));
  Number made;
  made.integer_ = integer;
  made.text_ = integer.str();
  made.approximate_ = std::strtold(made.text_.c_str(), nullptr);
  return Value::large(std::move(made));
}

Value Number::from(long double value) {
  if (!std::isfinite(value)) return {};
  if (std::fabs(value) < 9.2e18L && value == std::trunc(value)) return Value::integer(static_cast<std::int64_t>(value));
  if (value == std::trunc(value)) return from(BigInteger(value));
  return parse(shortest(value));
}

long double approximate(const Value& number) {
  return number.is_small_integer() ? static_cast<long double>(number.small_integer()) : number.large_number().approximate();
}

std::optional<BigInteger> big_integer(const Value& number) {
  if (number.is_small_integer()) return BigInteger(number.small_integer());
  return number.large_number().integer();
}

int compare_numbers(const Value& a, const Value& b) noexcept {
  if (both_small(a, b)) return a.small_integer() < b.small_integer() ? -1 : a.small_integer() > b.small_integer() ? 1 : 0;
  if (const auto both = integers(a, b)) return both->first < both->second ? -1 : both->first > both->second ? 1 : 0;
  const long double left = approximate(a);
  const long double right = approximate(b);
  return left < right ? -1 : left > right ? 1 : 0;
}

std::string number_text(const Value& number) {
  return number.is_small_integer() ? std::to_string(number.small_integer()) : std::string(number.large_number().text());
}

absl::StatusOr<Value> add(const Value& a, const Value& b) {
  std::int64_t sum = 0;
  if (both_small(a, b) && !__builtin_add_overflow(a.small_integer(), b.small_integer(), &sum)) return Value::integer(sum);
  if (const auto both = integers(a, b)) return finished(both->first + both->second);
  return finished(approximate(a) + approximate(b));
}

absl::StatusOr<Value> subtract(const Value& a, const Value& b) {
  std::int64_t difference = 0;
  if (both_small(a, b) && !__builtin_sub_overflow(a.small_integer(), b.small_integer(), &difference)) return Value::integer(difference);
  if (const auto both = integers(a, b)) return finished(both->first - both->second);
  return finished(approximate(a) - approximate(b));
}

absl::StatusOr<Value> multiply(const Value& a, const Value& b) {
  std::int64_t product = 0;
  if (both_small(a, b) && !__builtin_mul_overflow(a.small_integer(), b.small_integer(), &product)) return Value::integer(product);
  if (const auto both = integers(a, b)) return finished(both->first * both->second);
  return finished(approximate(a) * approximate(b));
}

absl::StatusOr<Value> divide(const Value& a, const Value& b) {
  if (approximate(b) == 0) return absl::UnknownError("divide by zero");
  if (both_small(a, b) && b.small_integer() != -1 && a.small_integer() % b.small_integer() == 0) {
    return Value::integer(a.small_integer() / b.small_integer());
  }
  if (const auto both = integers(a, b); both && both->first % both->second == 0) return finished(both->first / both->second);
  return finished(approximate(a) / approximate(b));
}

absl::StatusOr<Value> remainder(const Value& a, const Value& b) {
  const auto both = integers(a, b);
  if (!both) return absl::UnknownError("modulo on floating-point number");
  if (both->second == 0) return absl::UnknownError("modulo by zero");
  if (both_small(a, b) && b.small_integer() != -1) return Value::integer(a.small_integer() % b.small_integer());
  return finished(both->first % both->second);
}

}  // namespace openshell::policy::rego
