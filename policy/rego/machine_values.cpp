// Expressions.
#include "policy/rego/machine.hpp"
#include "policy/rego/number.hpp"
#include "policy/text.hpp"

#include <absl/container/inlined_vector.h>

#include <algorithm>

namespace openshell::policy::rego {

using openshell::policy::text::cat;

const Value* Machine::peek(const Expression& expression, Value* frame, Value& hold) {
  switch (expression.form) {
    case Expression::Form::constant:
      return &expression.constant;
    case Expression::Form::slot:
      return &frame[expression.slot];
    case Expression::Form::input:
      return world_->input.is_defined() ? &world_->input : nullptr;
    case Expression::Form::lookup: {
      const Value* base = peek(expression.parts[0], frame, hold);
      return base == nullptr ? nullptr : looked_up(expression, 1, base, frame, hold);
    }
    default:
      hold = computed(expression, frame);
      return hold.is_defined() && !failed_ ? &hold : nullptr;
  }
}

/// The parts of the expression from `from` on are keys into `base`, which `hold` may keep alive.
const Value* Machine::looked_up(const Expression& expression, std::size_t from, const Value* base, Value* frame, Value& hold) {
  for (std::size_t i = from; i < expression.parts.size(); ++i) {
    Value key_hold;
    const Value* key = peek(expression.parts[i], frame, key_hold);
    if (key == nullptr) return nullptr;
    base = base->find(*key);
    if (base == nullptr) return nullptr;
  }
  if (hold.is_defined()) {  // the part that is found outlives what held it
    Value found = *base;
    hold = std::move(found);
    return &hold;
  }
  return base;
}

Value Machine::value(const Expression& expression, Value* frame) {
  Value hold;
  const Value* found = peek(expression, frame, hold);
  if (found == nullptr) return {};
  return found == &hold ? std::move(hold) : *found;
}

Value Machine::computed(const Expression& expression, Value* frame) {
  switch (expression.form) {
    case Expression::Form::data:
      return data_value(expression, frame);
    case Expression::Form::array:
    case Expression::Form::set:
    case Expression::Form::object:
      return collection(expression, frame);
    case Expression::Form::compare:
      return compare(expression, frame);
    case Expression::Form::member:
    case Expression::Form::member_at:
      return member(expression, frame);
    case Expression::Form::add:
    case Expression::Form::subtract: {
      if (!world_->mocks.empty()) return builtin_call(expression, frame);
      Value left_hold;
      Value right_hold;
      const Value* left = peek(expression.parts[0], frame, left_hold);
      const Value* right = left == nullptr ? nullptr : peek(expression.parts[1], frame, right_hold);
      if (right == nullptr) return {};
      std::int64_t result = 0;
      if (left->is_small_integer() && right->is_small_integer()) {
        const bool over = expression.form == Expression::Form::add
                              ? __builtin_add_overflow(left->small_integer(), right->small_integer(), &result)
                              : __builtin_sub_overflow(left->small_integer(), right->small_integer(), &result);
        if (!over) return Value::integer(result);
      }
      const Value both[] = {*left, *right};
      return call_builtin(*expression.builtin, both, expression.at);
    }
    case Expression::Form::builtin:
      return builtin_call(expression, frame);
    case Expression::Form::function: {
      absl::InlinedVector<Value, 6> arguments(expression.parts.size());
      if (!this->arguments(expression, frame, arguments.data())) return {};
      return call(*expression.group, arguments, expression.at);
    }
    case Expression::Form::array_comprehension:
    case Expression::Form::set_comprehension:
    case Expression::Form::object_comprehension:
      return comprehension(expression, frame);
    case Expression::Form::interpolation:
      return interpolated(expression, frame);
    case Expression::Form::print:
      return printed(expression, frame);
    default:
      return {};
  }
}

Value Machine::compare(const Expression& expression, Value* frame) {
  Value left_hold;
  Value right_hold;
  const Value* left = peek(expression.parts[0], frame, left_hold);
  const Value* right = left == nullptr ? nullptr : peek(expression.parts[1], frame, right_hold);
  if (right == nullptr) return {};
  switch (expression.comparison) {
    case Expression::Comparison::equal:
      return Value::boolean(*left == *right);
    case Expression::Comparison::not_equal:
      return Value::boolean(!(*left == *right));
    case Expression::Comparison::less:
      return Value::boolean(Value::compare(*left, *right) < 0);
    case Expression::Comparison::at_most:
      return Value::boolean(Value::compare(*left, *right) <= 0);
    case Expression::Comparison::greater:
      return Value::boolean(Value::compare(*left, *right) > 0);
    case Expression::Comparison::at_least:
      return Value::boolean(Value::compare(*left, *right) >= 0);
  }
  return {};
}

Value Machine::member(const Expression& expression, Value* frame) {
  Value element_hold;
  Value collection_hold;
  Value key_hold;
  const bool keyed = expression.form == Expression::Form::member_at;
  const Value* key = keyed ? peek(expression.parts[0], frame, key_hold) : nullptr;
  if (keyed && key == nullptr) return {};
  const Value* element = peek(expression.parts[keyed ? 1 : 0], frame, element_hold);
  const Value* collection = element == nullptr ? nullptr : peek(expression.parts[keyed ? 2 : 1], frame, collection_hold);
  if (collection == nullptr) return {};
  if (keyed) {
    const Value* found = collection->find(*key);
    return Value::boolean(found != nullptr && *found == *element);
  }
  if (collection->is_set()) return Value::boolean(collection->find(*element) != nullptr);
  if (const auto status = context_.charge(collection->size() / 8); !status.ok()) {
    fail(expression.at, status);
    return {};
  }
  for (const auto& item : collection->items()) {
    if (item == *element) return Value::boolean(true);
  }
  for (const auto& member : collection->members()) {
    if (member.value == *element) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Value Machine::collection(const Expression& expression, Value* frame) {
  if (!fits(expression.parts.size(), expression.at)) return {};
  if (expression.form != Expression::Form::object) {
    std::vector<Value> items;
    items.reserve(expression.parts.size());
    for (const auto& part : expression.parts) {
      items.push_back(value(part, frame));
      if (!items.back().is_defined()) return {};
    }
    return expression.form == Expression::Form::array ? Value::array(std::move(items)) : Value::set(std::move(items));
  }
  std::vector<Member> members;
  members.reserve(expression.parts.size() / 2);
  for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    Value key = value(expression.parts[i], frame);
    if (!key.is_defined()) return {};
    Value given = value(expression.parts[i + 1], frame);
    if (!given.is_defined()) return {};
    members.push_back({std::move(key), std::move(given)});
  }
  return Value::object(std::move(members));
}

Value Machine::comprehension(const Expression& expression, Value* frame) {
  const auto& parts = expression.parts;
  if (expression.form == Expression::Form::object_comprehension) {
    std::vector<Member> members;
    steps(*expression.plan, 0, frame, [&] {
      Value key = value(parts[0], frame);
      Value given = key.is_defined() ? value(parts[1], frame) : Value();
      if (!given.is_defined()) return failed_ ? Flow::stop : Flow::on;
      members.push_back({std::move(key), std::move(given)});
      return fits(members.size(), expression.at) ? Flow::on : Flow::stop;
    });
    if (failed_) return {};
    return unique_members(std::move(members), expression.at, "object comprehension produced the same key with different values");
  }
  std::vector<Value> items;
  steps(*expression.plan, 0, frame, [&] {
    Value item = value(parts[0], frame);
    if (!item.is_defined()) return failed_ ? Flow::stop : Flow::on;
    items.push_back(std::move(item));
    return fits(items.size(), expression.at) ? Flow::on : Flow::stop;
  });
  if (failed_) return {};
  return expression.form == Expression::Form::array_comprehension ? Value::array(std::move(items)) : Value::set(std::move(items));
}

/// An object of members of which equal keys have to have equal values.
Value Machine::unique_members(std::vector<Member> members, Position at, std::string_view otherwise) {
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.key < b.key; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (kept != 0 && members[kept - 1].key == members[i].key) {
      if (members[kept - 1].value == members[i].value) continue;
      fail(code::kConflict, at, std::string(otherwise));
      return {};
    }
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.resize(kept);
  return Value::sorted_object(std::move(members));
}

Value Machine::interpolated(const Expression& expression, Value* frame) {
  std::string text;
  for (const auto& part : expression.parts) {
    const Value given = value(part, frame);
    if (failed_) return {};
    if (part.form == Expression::Form::constant) {
      text += given.text();
    } else if (given.size() == 0) {
      text += "<undefined>";
    } else if (const Value& one = given.items()[0]; one.is_string()) {
      text += one.text();
    } else {
      append_rego(text, one);
    }
  }
  if (const auto status = context_.room_for_text(text.size()); !status.ok()) {
    fail(expression.at, status);
    return {};
  }
  return Value::string(text);
}

Value Machine::printed(const Expression& expression, Value* frame) {
  std::vector<std::string> lines = {""};
  for (const auto& part : expression.parts) {
    const Value given = value(part, frame);
    if (failed_) return {};
    std::vector<std::string> shown;
    for (const auto& one : given.items()) shown.push_back(one.is_string() ? std::string(one.text()) : to_rego(one));
    if (shown.empty()) shown.emplace_back("<undefined>");
    std::vector<std::string> longer;
    for (const auto& line : lines) {
      for (const auto& word : shown) longer.push_back(&part == &expression.parts[0] ? word : cat(line, " ", word));
    }
    lines = std::move(longer);
    if (!fits(lines.size(), expression.at)) return {};
  }
  if (context_.print) {
    for (const auto& line : lines) context_.print(line);
  }
  return Value::boolean(true);
}

bool Machine::arguments(const Expression& expression, Value* frame, Value* into) {
  for (std::size_t i = 0; i < expression.parts.size(); ++i) {
    into[i] = value(expression.parts[i], frame);
    if (!into[i].is_defined()) return false;
  }
  return true;
}

Value Machine::builtin_call(const Expression& expression, Value* frame) {
  absl::InlinedVector<Value, 4> arguments(expression.parts.size());
  if (!this->arguments(expression, frame, arguments.data())) return {};
  if (const auto* mock = this->mock(expression.builtin)) {
    if (mock->group != nullptr) return call(*mock->group, arguments, expression.at);
    if (mock->builtin != nullptr) return call_builtin(*mock->builtin, arguments, expression.at);
    return mock->value;
  }
  return call_builtin(*expression.builtin, arguments, expression.at);
}

Value Machine::call_builtin(const Builtin& builtin, std::span<const Value> arguments, Position at) {
  if (!charge(at)) return {};
  if (builtin.function == nullptr) return {};
  auto result = builtin.function(context_, arguments);
  if (result.ok()) return *std::move(result);
  const auto& status = result.status();
  const bool ends = status.code() == absl::StatusCode::kResourceExhausted || status.code() == absl::StatusCode::kAborted;
  if (!ends && !context_.strict_errors) return {};
  const std::string message(status.message().data(), status.message().size());
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    fail(at, status);
  } else {
    fail(at, absl::Status(status.code(), cat(builtin.name, ": ", message)));
  }
  return {};
}

}  // namespace openshell::policy::rego
