#include "policy/rego/builtins_operators.hpp"

#include "policy/rego/number.hpp"

#include <algorithm>
#include <iterator>

namespace openshell::policy::rego {
namespace {

using Arguments = std::span<const Value>;

BuiltinResult equal(QueryContext& /*context*/, Arguments a) { return Value::boolean(a[0] == a[1]); }
BuiltinResult not_equal(QueryContext& /*context*/, Arguments a) { return Value::boolean(!(a[0] == a[1])); }
BuiltinResult less(QueryContext& /*context*/, Arguments a) { return Value::boolean(a[0] < a[1]); }
BuiltinResult at_most(QueryContext& /*context*/, Arguments a) { return Value::boolean(a[0] <= a[1]); }
BuiltinResult greater(QueryContext& /*context*/, Arguments a) { return Value::boolean(a[0] > a[1]); }
BuiltinResult at_least(QueryContext& /*context*/, Arguments a) { return Value::boolean(a[0] >= a[1]); }

absl::Status both_numbers(Arguments a) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!a[i].is_number()) return operand_error(i + 1, "number", a[i]);
  }
  return absl::OkStatus();
}

absl::Status both_sets(Arguments a) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!a[i].is_set()) return operand_error(i + 1, "set", a[i]);
  }
  return absl::OkStatus();
}

template <absl::StatusOr<Value> (*Reckon)(const Value&, const Value&)>
BuiltinResult arithmetic(QueryContext& /*context*/, Arguments a) {
  if (auto status = both_numbers(a); !status.ok()) return status;
  return Reckon(a[0], a[1]);
}

BuiltinResult minus(QueryContext& context, Arguments a) {
  if (!a[0].is_set() || !a[1].is_set()) {
    if (!a[0].is_number() && !a[0].is_set()) return operand_error(1, "one of {number, set}", a[0]);
    if (a[0].is_set()) return operand_error(2, "set", a[1]);
    return arithmetic<subtract>(context, a);
  }
  if (auto status = context.charge((a[0].size() + a[1].size()) / 8); !status.ok()) return status;
  std::vector<Value> left;
  std::set_difference(a[0].items().begin(), a[0].items().end(), a[1].items().begin(), a[1].items().end(), std::back_inserter(left));
  return Value::sorted_set(std::move(left));
}

BuiltinResult both(QueryContext& context, Arguments a) {
  if (auto status = both_sets(a); !status.ok()) return status;
  if (auto status = context.charge((a[0].size() + a[1].size()) / 8); !status.ok()) return status;
  std::vector<Value> common;
  std::set_intersection(a[0].items().begin(), a[0].items().end(), a[1].items().begin(), a[1].items().end(), std::back_inserter(common));
  return Value::sorted_set(std::move(common));
}

BuiltinResult either(QueryContext& context, Arguments a) {
  if (auto status = both_sets(a); !status.ok()) return status;
  if (auto status = context.charge((a[0].size() + a[1].size()) / 8); !status.ok()) return status;
  if (auto status = context.room_for(std::max(a[0].size(), a[1].size())); !status.ok()) return status;
  std::vector<Value> all;
  std::set_union(a[0].items().begin(), a[0].items().end(), a[1].items().begin(), a[1].items().end(), std::back_inserter(all));
  if (auto status = context.room_for(all.size()); !status.ok()) return status;
  return Value::sorted_set(std::move(all));
}

BuiltinResult member(QueryContext& context, Arguments a) {
  const Value& collection = a[1];
  if (collection.is_set()) return Value::boolean(collection.find(a[0]) != nullptr);
  if (auto status = context.charge(collection.size() / 8); !status.ok()) return status;
  const auto items = collection.items();
  const auto members = collection.members();
  return Value::boolean(std::find(items.begin(), items.end(), a[0]) != items.end() ||
                        std::any_of(members.begin(), members.end(), [&](const Member& member) { return member.value == a[0]; }));
}

BuiltinResult member_at(QueryContext& /*context*/, Arguments a) {
  const Value* found = a[2].find(a[0]);
  return Value::boolean(found != nullptr && *found == a[1]);
}

BuiltinResult print(QueryContext& /*context*/, Arguments /*arguments*/) { return Value::boolean(true); }

}  // namespace

const BuiltinTable& operator_builtins() {
  using namespace types;
  static const Type number_or_set = any_of({number(), set_of(any())});
  static const BuiltinTable table = {
      {"equal", {any(), any()}, boolean(), equal},
      {"eq", {any(), any()}, boolean(), equal},
      {"neq", {any(), any()}, boolean(), not_equal},
      {"lt", {any(), any()}, boolean(), less},
      {"lte", {any(), any()}, boolean(), at_most},
      {"gt", {any(), any()}, boolean(), greater},
      {"gte", {any(), any()}, boolean(), at_least},
      {"plus", {number(), number()}, number(), arithmetic<add>},
      {"minus", {number_or_set, number_or_set}, number_or_set, minus},
      {"mul", {number(), number()}, number(), arithmetic<multiply>},
      {"div", {number(), number()}, number(), arithmetic<divide>},
      {"rem", {number(), number()}, number(), arithmetic<remainder>},
      {"and", {set_of(any()), set_of(any())}, set_of(any()), both},
      {"or", {set_of(any()), set_of(any())}, set_of(any()), either},
      {"internal.member_2", {any(), any()}, boolean(), member},
      {"internal.member_3", {any(), any(), any()}, boolean(), member_at},
      {"print", {}, boolean(), print, false, false, true},
  };
  return table;
}

}  // namespace openshell::policy::rego
