#include "policy/rego/builtins_objects.hpp"

#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;
using Arguments = std::span<const Value>;

absl::Status object_at(Arguments a, std::size_t i) { return a[i].is_object() ? absl::OkStatus() : operand_error(i + 1, "object", a[i]); }

BuiltinResult get(QueryContext& /*context*/, Arguments a) {
  if (auto status = object_at(a, 0); !status.ok()) return status;
  if (!a[1].is_array()) {
    const Value* found = a[0].find(a[1]);
    return found == nullptr ? a[2] : *found;
  }
  const Value* at = &a[0];
  for (const auto& key : a[1].items()) {
    at = at->find(key);
    if (at == nullptr) return a[2];
  }
  return *at;
}

BuiltinResult keys(QueryContext& context, Arguments a) {
  if (auto status = object_at(a, 0); !status.ok()) return status;
  if (auto status = context.charge(a[0].size() / 8); !status.ok()) return status;
  std::vector<Value> all;
  for (const auto& member : a[0].members()) all.push_back(member.key);
  return Value::sorted_set(std::move(all));
}

/// Keys as an array, a set or an object whose keys are meant.
absl::StatusOr<Value> key_set(const Value& keys) {
  if (keys.is_set()) return keys;
  if (keys.is_array()) return Value::set({keys.items().begin(), keys.items().end()});
  if (!keys.is_object()) return operand_error(2, "one of {object, set, array}", keys);
  std::vector<Value> all;
  for (const auto& member : keys.members()) all.push_back(member.key);
  return Value::sorted_set(std::move(all));
}

template <bool Keep>
BuiltinResult picked(QueryContext& context, Arguments a) {
  if (auto status = object_at(a, 0); !status.ok()) return status;
  const auto wanted = key_set(a[1]);
  if (!wanted.ok()) return wanted.status();
  if (auto status = context.charge((a[0].size() + wanted->size()) / 8); !status.ok()) return status;
  std::vector<Member> members;
  for (const auto& member : a[0].members()) {
    if ((wanted->find(member.key) != nullptr) == Keep) members.push_back(member);
  }
  return Value::sorted_object(std::move(members));
}

absl::StatusOr<Value> merged(QueryContext& context, const Value& under, const Value& over) {
  if (!under.is_object() || !over.is_object()) return over;
  if (auto status = context.charge(1 + (under.size() + over.size()) / 8); !status.ok()) return status;
  if (auto status = context.room_for(std::max(under.size(), over.size())); !status.ok()) return status;
  const auto left = under.members();
  const auto right = over.members();
  std::vector<Member> members;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() || j < right.size()) {
    const int order = i == left.size() ? 1 : j == right.size() ? -1 : Value::compare(left[i].key, right[j].key);
    if (order < 0) {
      members.push_back(left[i++]);
    } else if (order > 0) {
      members.push_back(right[j++]);
    } else {
      auto both = merged(context, left[i++].value, right[j].value);
      if (!both.ok()) return both;
      members.push_back({right[j++].key, *std::move(both)});
    }
  }
  if (auto status = context.room_for(members.size()); !status.ok()) return status;
  return Value::sorted_object(std::move(members));
}

BuiltinResult united(QueryContext& context, Arguments a) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (auto status = object_at(a, i); !status.ok()) return status;
  }
  return merged(context, a[0], a[1]);
}

BuiltinResult united_all(QueryContext& context, Arguments a) {
  if (!a[0].is_array()) return operand_error(1, "array", a[0]);
  Value all = Value::sorted_object({});
  for (const auto& object : a[0].items()) {
    if (!object.is_object())
      return absl::InvalidArgumentError(cat("operand 1 must be array of objects but got array containing ", kind_name(object.kind())));
    auto next = merged(context, all, object);
    if (!next.ok()) return next;
    all = *std::move(next);
  }
  return all;
}

/// Objects by member, nested ones too; sets by element; an array has the other's elements in a row.
absl::StatusOr<bool> holds(QueryContext& context, const Value& super, const Value& sub) {
  if (auto status = context.charge(1 + sub.size() / 8); !status.ok()) return status;
  if (super.is_object() && sub.is_object()) {
    for (const auto& member : sub.members()) {
      const Value* found = super.find(member.key);
      if (found == nullptr) return false;
      if (!found->is_collection() || !member.value.is_collection() || found->kind() != member.value.kind()) {
        if (!(*found == member.value)) return false;
        continue;
      }
      const auto inner = holds(context, *found, member.value);
      if (!inner.ok() || !*inner) return inner;
    }
    return true;
  }
  const auto items = super.items();
  const auto wanted = sub.items();
  if (super.is_set() && sub.is_set()) return std::includes(items.begin(), items.end(), wanted.begin(), wanted.end());
  if (super.is_array() && sub.is_array()) {
    if (wanted.empty()) return true;
    if (auto status = context.charge(items.size() * wanted.size() / 8); !status.ok()) return status;
    return std::search(items.begin(), items.end(), wanted.begin(), wanted.end()) != items.end();
  }
  if (super.is_array() && sub.is_set()) {
    if (auto status = context.charge(items.size() * wanted.size() / 8); !status.ok()) return status;
    return std::all_of(wanted.begin(), wanted.end(),
                       [&](const Value& item) { return std::find(items.begin(), items.end(), item) != items.end(); });
  }
  return absl::InvalidArgumentError("both arguments object.subset must be of the same type or array and set");
}

BuiltinResult subset(QueryContext& context, Arguments a) {
  const auto answer = holds(context, a[0], a[1]);
  if (!answer.ok()) return answer.status();
  return Value::boolean(*answer);
}

}  // namespace

const BuiltinTable& object_builtins() {
  using namespace types;
  static const Type object = object_of(any(), any());
  static const Type keyed = any_of({array_of(any()), set_of(any()), object});
  static const BuiltinTable table = {
      {"object.get", {object, any(), any()}, any(), get},
      {"object.keys", {object}, set_of(any()), keys},
      {"object.remove", {object, keyed}, object, picked<false>},
      {"object.filter", {object, keyed}, object, picked<true>},
      {"object.union", {object, object}, object, united},
      {"object.union_n", {array_of(object)}, object, united_all},
      {"object.subset",
       {any_of({object, set_of(any()), array_of(any())}), any_of({object, set_of(any()), array_of(any())})},
       boolean(),
       subset},
  };
  return table;
}

}  // namespace openshell::policy::rego
