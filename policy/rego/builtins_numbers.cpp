#include "policy/rego/builtins_numbers.hpp"

#include "policy/rego/number.hpp"
#include "policy/text.hpp"

#include <cmath>
#include <random>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;
using Arguments = std::span<const Value>;

absl::StatusOr<BigInteger> integer(Arguments a, std::size_t i) {
  if (!a[i].is_number()) return operand_error(i + 1, "number", a[i]);
  auto found = big_integer(a[i]);
  if (!found) return absl::InvalidArgumentError(cat("operand ", i + 1, " must be integer number but got floating-point number"));
  return *std::move(found);
}

/// `Round` is given what is no integer.
template <long double (*Round)(long double)>
BuiltinResult rounded(QueryContext& /*context*/, Arguments a) {
  if (!a[0].is_number()) return operand_error(1, "number", a[0]);
  if (const auto whole = big_integer(a[0])) return Number::from(*whole);
  const long double value = Round(approximate(a[0]));
  return Number::from(BigInteger(value));
}

long double up(long double value) { return std::ceil(value); }
long double down(long double value) { return std::floor(value); }
long double nearest(long double value) { return std::round(value); }

BuiltinResult absolute(QueryContext& /*context*/, Arguments a) {
  if (!a[0].is_number()) return operand_error(1, "number", a[0]);
  if (compare_numbers(a[0], Value::integer(0)) >= 0) return a[0];
  return subtract(Value::integer(0), a[0]);
}

BuiltinResult counted(QueryContext& context, Arguments a, const BigInteger& step) {
  const auto first = integer(a, 0);
  if (!first.ok()) return first.status();
  const auto last = integer(a, 1);
  if (!last.ok()) return last.status();
  const bool rises = *first <= *last;
  const BigInteger distance = rises ? BigInteger(*last - *first) : BigInteger(*first - *last);
  const BigInteger count = distance / step + 1;
  if (count > BigInteger(context.limits().elements)) return absl::ResourceExhaustedError("limit exceeded: elements");
  const auto size = static_cast<std::uint64_t>(count);
  if (auto status = context.charge(size / 8); !status.ok()) return status;
  std::vector<Value> items;
  items.reserve(size);
  BigInteger at = *first;
  for (std::uint64_t i = 0; i < size; ++i) {
    items.push_back(Number::from(at));
    rises ? at += step : at -= step;
  }
  return Value::array(std::move(items));
}

BuiltinResult range(QueryContext& context, Arguments a) { return counted(context, a, 1); }

BuiltinResult range_step(QueryContext& context, Arguments a) {
  const auto step = integer(a, 2);
  if (!step.ok()) return step.status();
  if (*step <= 0) return absl::UnknownError("step must be a positive number above zero");
  return counted(context, a, *step);
}

enum class Bits { both, either, different };

template <Bits How>
BuiltinResult bits(QueryContext& /*context*/, Arguments a) {
  const auto left = integer(a, 0);
  if (!left.ok()) return left.status();
  const auto right = integer(a, 1);
  if (!right.ok()) return right.status();
  if constexpr (How == Bits::both) return Number::from(BigInteger(*left & *right));
  if constexpr (How == Bits::either) return Number::from(BigInteger(*left | *right));
  return Number::from(BigInteger(*left ^ *right));
}

BuiltinResult negated_bits(QueryContext& /*context*/, Arguments a) {
  const auto value = integer(a, 0);
  if (!value.ok()) return value.status();
  return Number::from(BigInteger(-*value - 1));
}

template <bool Left>
BuiltinResult shifted(QueryContext& /*context*/, Arguments a) {
  const auto value = integer(a, 0);
  if (!value.ok()) return value.status();
  const auto by = integer(a, 1);
  if (!by.ok()) return by.status();
  if (*by < 0) return absl::InvalidArgumentError("operand 2 must be an unsigned integer number but got a negative integer");
  if (Left && *by > kMaxIntegerBits && *value != 0) return absl::ResourceExhaustedError("limit exceeded: digits of an integer");
  if (!Left && *by > 2 * BigInteger(kMaxIntegerBits)) return Value::integer(*value < 0 ? -1 : 0);
  const auto count = static_cast<unsigned>(*by);
  if (Left) return multiply(Number::from(*value), Number::from(BigInteger(BigInteger(1) << count)));
  const BigInteger power = BigInteger(1) << count;  // towards minus infinity, as shifts of two's complement go
  BigInteger quotient = *value / power;
  if (*value < 0 && quotient * power != *value) quotient -= 1;
  return Number::from(quotient);
}

BuiltinResult format_int(QueryContext& /*context*/, Arguments a) {
  if (!a[0].is_number()) return operand_error(1, "number", a[0]);
  const auto base = a[1].as_integer();
  if (!a[1].is_number()) return operand_error(2, "number", a[1]);
  if (!base || (*base != 2 && *base != 8 && *base != 10 && *base != 16))
    return absl::InvalidArgumentError("operand 2 must be one of {2, 8, 10, 16}");
  BigInteger value = big_integer(a[0]).value_or(BigInteger(std::trunc(approximate(a[0]))));
  const bool negative = value < 0;
  if (negative) value = -value;
  std::string digits;
  if (*base == 10) {
    digits = value.str();
  } else {
    const unsigned bits = *base == 2 ? 1 : *base == 8 ? 3 : 4;
    do {
      digits.insert(digits.begin(), "0123456789abcdef"[static_cast<unsigned>(value & BigInteger(*base - 1))]);
      value >>= bits;
    } while (value != 0);
  }
  return Value::string(negative ? "-" + digits : digits);
}

BuiltinResult random_below(QueryContext& context, Arguments a) {
  if (!a[0].is_string()) return operand_error(1, "string", a[0]);
  const auto bound = integer(a, 1);
  if (!bound.ok()) return bound.status();
  const auto size = a[1].as_integer();
  if (!size || *size == INT64_MIN) return absl::InvalidArgumentError("operand 2 must be an integer of 64 bits");
  if (*size == 0) return Value::integer(0);
  auto& drawn = context.memory<absl::flat_hash_map<Value, Value>>("rand.intn");
  auto [place, fresh] = drawn.try_emplace(Value::array({a[0], a[1]}));
  if (fresh) {
    static thread_local std::mt19937_64 source{std::random_device{}()};
    place->second = Value::integer(std::uniform_int_distribution<std::int64_t>(0, std::abs(*size) - 1)(source));
  }
  return place->second;
}

}  // namespace

const BuiltinTable& number_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"abs", {number()}, number(), absolute},
      {"ceil", {number()}, number(), rounded<up>},
      {"floor", {number()}, number(), rounded<down>},
      {"round", {number()}, number(), rounded<nearest>},
      {"numbers.range", {number(), number()}, array_of(number()), range},
      {"numbers.range_step", {number(), number(), number()}, array_of(number()), range_step},
      {"bits.and", {number(), number()}, number(), bits<Bits::both>},
      {"bits.or", {number(), number()}, number(), bits<Bits::either>},
      {"bits.xor", {number(), number()}, number(), bits<Bits::different>},
      {"bits.negate", {number()}, number(), negated_bits},
      {"bits.lsh", {number(), number()}, number(), shifted<true>},
      {"bits.rsh", {number(), number()}, number(), shifted<false>},
      {"format_int", {number(), number()}, string(), format_int},
      {"rand.intn", {string(), number()}, number(), random_below, true},
  };
  return table;
}

}  // namespace openshell::policy::rego
