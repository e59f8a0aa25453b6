// Numbers of the language: integers of any size, and decimals that keep the text they came with.
//
// What is no integer is reckoned with 64 bits of mantissa and shown with the fewest digits that name it among those, so `0.1 + 0.2` is 0.3.
#pragma once

#include "policy/rego/value.hpp"

#include <boost/multiprecision/cpp_int.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace openshell::policy::rego {

using BigInteger = boost::multiprecision::cpp_int;

/// Bits that an integer may have: a product that is larger is refused.
inline constexpr unsigned kMaxIntegerBits = 1U << 17;

/// A number that is no integer of 64 bits.
class Number {
 public:
  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  /// Nearest value with 64 bits of mantissa.
  [[nodiscard]] long double approximate() const noexcept { return approximate_; }
  [[nodiscard]] const std::optional<BigInteger>& integer() const noexcept { return integer_; }

  /// Undefined where the text is no JSON number.
  static Value parse(std::string_view json_text);
  static Value from(const BigInteger& integer);
  /// Undefined for infinities and NaN.
  static Value from(long double value);

 private:
  std::string text_;
  long double approximate_ = 0;
  std::optional<BigInteger> integer_;  ///< Where it is one, however it is spelled.
};

/// All take numbers only.
long double approximate(const Value& number);
/// The integer, where the number is one (2.0 is).
std::optional<BigInteger> big_integer(const Value& number);
int compare_numbers(const Value& a, const Value& b) noexcept;
std::string number_text(const Value& number);

/// RESOURCE_EXHAUSTED beyond kMaxIntegerBits.
absl::StatusOr<Value> add(const Value& a, const Value& b);
absl::StatusOr<Value> subtract(const Value& a, const Value& b);
absl::StatusOr<Value> multiply(const Value& a, const Value& b);
/// UNKNOWN `divide by zero`. An integer where the division has no remainder.
absl::StatusOr<Value> divide(const Value& a, const Value& b);
/// UNKNOWN `modulo by zero`, `modulo on floating-point number`. The sign follows the dividend.
absl::StatusOr<Value> remainder(const Value& a, const Value& b);

}  // namespace openshell::policy::rego
