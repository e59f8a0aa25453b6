#include "policy/rego/builtins_collections.hpp"

#include "policy/rego/number.hpp"
#include "policy/text.hpp"

#include <algorithm>
#include <iterator>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;
using Arguments = std::span<const Value>;

constexpr std::string_view kListed = "one of {array, set}";

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

absl::Status listed(QueryContext& context, const Value& value, std::size_t position = 1) {
  if (!value.is_array() && !value.is_set()) return operand_error(position, kListed, value);
  return context.charge(value.size() / 8);
}

BuiltinResult count(QueryContext& /*context*/, Arguments a) {
  if (a[0].is_string()) return Value::integer(static_cast<std::int64_t>(characters(a[0].text())));
  if (!a[0].is_collection()) return operand_error(1, "one of {array, object, set, string}", a[0]);
  return Value::integer(static_cast<std::int64_t>(a[0].size()));
}

template <absl::StatusOr<Value> (*Reckon)(const Value&, const Value&), int Start>
BuiltinResult folded(QueryContext& context, Arguments a) {
  if (auto status = listed(context, a[0]); !status.ok()) return status;
  Value sum = Value::integer(Start);
  for (const auto& item : a[0].items()) {
    if (!item.is_number())
      return absl::InvalidArgumentError(cat("operand 1 must be ", kind_name(a[0].kind()), " of numbers but got ", kind_name(a[0].kind()),
                                            " containing ", kind_name(item.kind())));
    auto next = Reckon(sum, item);
    if (!next.ok()) return next;
    sum = *std::move(next);
  }
  return sum;
}

BuiltinResult largest(QueryContext& context, Arguments a) {
  if (auto status = listed(context, a[0]); !status.ok()) return status;
  const auto items = a[0].items();
  return items.empty() ? Value() : *std::max_element(items.begin(), items.end());
}

BuiltinResult smallest(QueryContext& context, Arguments a) {
  if (auto status = listed(context, a[0]); !status.ok()) return status;
  const auto items = a[0].items();
  return items.empty() ? Value() : *std::min_element(items.begin(), items.end());
}

BuiltinResult sorted(QueryContext& context, Arguments a) {
  if (auto status = listed(context, a[0]); !status.ok()) return status;
  std::vector<Value> items(a[0].items().begin(), a[0].items().end());
  std::stable_sort(items.begin(), items.end());
  return Value::array(std::move(items));
}

BuiltinResult all(QueryContext& context, Arguments a) {
  if (auto status = listed(context, a[0]); !status.ok()) return status;
  const auto items = a[0].items();
  return Value::boolean(std::all_of(items.begin(), items.end(), [](const Value& item) { return item.is_true(); }));
}

BuiltinResult any(QueryContext& context, Arguments a) {
  if (auto status = listed(context, a[0]); !status.ok()) return status;
  const auto items = a[0].items();
  return Value::boolean(std::any_of(items.begin(), items.end(), [](const Value& item) { return item.is_true(); }));
}

BuiltinResult concatenated(QueryContext& context, Arguments a) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!a[i].is_array()) return operand_error(i + 1, "array", a[i]);
  }
  if (auto status = context.room_for(a[0].size() + a[1].size()); !status.ok()) return status;
  if (auto status = context.charge((a[0].size() + a[1].size()) / 8); !status.ok()) return status;
  std::vector<Value> items(a[0].items().begin(), a[0].items().end());
  items.insert(items.end(), a[1].items().begin(), a[1].items().end());
  return Value::array(std::move(items));
}

BuiltinResult slice(QueryContext& context, Arguments a) {
  if (!a[0].is_array()) return operand_error(1, "array", a[0]);
  for (std::size_t i = 1; i < 3; ++i) {
    if (!a[i].is_number()) return operand_error(i + 1, "number", a[i]);
    if (!big_integer(a[i]))
      return absl::InvalidArgumentError(cat("operand ", i + 1, " must be integer number but got floating-point number"));
  }
  const auto size = static_cast<std::int64_t>(a[0].size());
  const auto place = [&](const Value& value) {
    return std::clamp(value.as_integer().value_or(approximate(value) < 0 ? 0 : size), std::int64_t{0}, size);
  };
  const auto from = place(a[1]);
  const auto to = place(a[2]);
  if (from >= to) return Value::array({});
  if (auto status = context.charge(static_cast<std::uint64_t>(to - from) / 8); !status.ok()) return status;
  return Value::array({a[0].items().begin() + from, a[0].items().begin() + to});
}

BuiltinResult reversed(QueryContext& context, Arguments a) {
  if (!a[0].is_array()) return operand_error(1, "array", a[0]);
  if (auto status = context.charge(a[0].size() / 8); !status.ok()) return status;
  return Value::array({a[0].items().rbegin(), a[0].items().rend()});
}

BuiltinResult flattened(QueryContext& context, Arguments a) {
  if (!a[0].is_array()) return operand_error(1, "array", a[0]);
  std::vector<Value> items;
  for (const auto& item : a[0].items()) {
    if (item.is_array()) {
      items.insert(items.end(), item.items().begin(), item.items().end());
    } else {
      items.push_back(item);
    }
    if (auto status = context.room_for(items.size()); !status.ok()) return status;
  }
  if (auto status = context.charge(items.size() / 8); !status.ok()) return status;
  return Value::array(std::move(items));
}

absl::Status set_of_sets(Arguments a) {
  if (!a[0].is_set()) return operand_error(1, "set", a[0]);
  for (const auto& item : a[0].items()) {
    if (!item.is_set())
      return absl::InvalidArgumentError(cat("operand 1 must be set of sets but got set containing ", kind_name(item.kind())));
  }
  return absl::OkStatus();
}

BuiltinResult intersection(QueryContext& context, Arguments a) {
  if (auto status = set_of_sets(a); !status.ok()) return status;
  const auto sets = a[0].items();
  if (sets.empty()) return Value::set({});
  std::vector<Value> common(sets[0].items().begin(), sets[0].items().end());
  for (const auto& set : sets.subspan(1)) {
    if (auto status = context.charge(set.size() / 8); !status.ok()) return status;
    std::vector<Value> next;
    std::set_intersection(common.begin(), common.end(), set.items().begin(), set.items().end(), std::back_inserter(next));
    common = std::move(next);
  }
  return Value::sorted_set(std::move(common));
}

BuiltinResult united(QueryContext& context, Arguments a) {
  if (auto status = set_of_sets(a); !status.ok()) return status;
  std::vector<Value> items;
  for (const auto& set : a[0].items()) {
    if (auto status = context.charge(set.size() / 8); !status.ok()) return status;
    if (auto status = context.room_for((items.size() + set.size()) / 16); !status.ok()) return status;
    items.insert(items.end(), set.items().begin(), set.items().end());
  }
  Value made = Value::set(std::move(items));
  if (auto status = context.room_for(made.size()); !status.ok()) return status;
  return made;
}

BuiltinResult difference(QueryContext& context, Arguments a) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!a[i].is_set()) return operand_error(i + 1, "set", a[i]);
  }
  if (auto status = context.charge((a[0].size() + a[1].size()) / 8); !status.ok()) return status;
  std::vector<Value> left;
  std::set_difference(a[0].items().begin(), a[0].items().end(), a[1].items().begin(), a[1].items().end(), std::back_inserter(left));
  return Value::sorted_set(std::move(left));
}

}  // namespace

const BuiltinTable& collection_builtins() {
  using T = Type;
  const T whatever = types::any();
  static const T list = types::any_of({types::array_of(whatever), types::set_of(whatever)});
  static const T numbers = types::any_of({types::array_of(types::number()), types::set_of(types::number())});
  static const T array = types::array_of(whatever);
  static const T set = types::set_of(whatever);
  static const BuiltinTable table = {
      {"count", {types::any_of({set, array, types::object_of(whatever, whatever), types::string()})}, types::number(), count},
      {"sum", {numbers}, types::number(), folded<add, 0>},
      {"product", {numbers}, types::number(), folded<multiply, 1>},
      {"max", {list}, whatever, largest},
      {"min", {list}, whatever, smallest},
      {"sort", {list}, array, sorted},
      {"all", {list}, types::boolean(), all},
      {"any", {list}, types::boolean(), any},
      {"array.concat", {array, array}, array, concatenated},
      {"array.slice", {array, types::number(), types::number()}, array, slice},
      {"array.reverse", {array}, array, reversed},
      {"array.flatten", {array}, array, flattened},
      {"intersection", {types::set_of(set)}, set, intersection},
      {"union", {types::set_of(set)}, set, united},
      {"set_diff", {set, set}, set, difference},
  };
  return table;
}

}  // namespace openshell::policy::rego
