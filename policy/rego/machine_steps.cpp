// Plans: one statement after the other, those with many answers once for each.
#include "policy/rego/machine.hpp"

namespace openshell::policy::rego {

Machine::Flow Machine::steps(const Plan& plan, std::size_t from, Value* frame, Sink sink) {
  for (std::size_t i = from; i < plan.size(); ++i) {
    const Step& step = plan[i];
    if (!charge(step.at)) return Flow::stop;
    const auto lost = [&] { return failed_ ? Flow::stop : Flow::on; };
    const auto go_on = [&](const Value& value) {
      if (!match(step.pattern, value, frame)) return lost();
      return steps(plan, i + 1, frame, sink);
    };
    switch (step.form) {
      case Step::Form::test: {
        Value hold;
        const Value* value = peek(step.expression, frame, hold);
        if (value == nullptr || value->is_false()) return lost();
        break;
      }
      case Step::Form::defined: {
        Value hold;
        if (peek(step.expression, frame, hold) == nullptr) return lost();
        break;
      }
      case Step::Form::bind: {
        Value given = value(step.expression, frame);
        if (!given.is_defined()) return lost();
        frame[step.slot] = std::move(given);
        break;
      }
      case Step::Form::match: {
        Value hold;
        const Value* value = peek(step.expression, frame, hold);
        if (value == nullptr || !match(step.pattern, *value, frame)) return lost();
        break;
      }
      case Step::Form::negate:
        if (answers(*step.plan, frame) || failed_) return lost();
        break;
      case Step::Form::every:
        if (!holds_for_every(step, frame)) return lost();
        break;
      case Step::Form::fail:
        return lost();
      case Step::Form::relate:
        return relate(step, frame, go_on);
      case Step::Form::with:
        return with(step, frame, [&] { return steps(plan, i + 1, frame, sink); });
      case Step::Form::scan: {
        if (step.expression.form == Expression::Form::data && step.expression.parts.empty()) return scan_data(step, frame, go_on);
        Value hold;
        const Value* base = peek(step.expression, frame, hold);
        if (base == nullptr) return lost();
        return scan_value(*base, step.path, frame, go_on);
      }
    }
  }
  return sink();
}

/// Whether there is one; false too when it failed.
bool Machine::answers(const Plan& plan, Value* frame) {
  bool found = false;
  steps(plan, 0, frame, [&] {
    found = true;
    return Flow::stop;
  });
  return found && !failed_;
}

bool Machine::match(const Pattern& pattern, const Value& given, Value* frame) {
  switch (pattern.form) {
    case Pattern::Form::ignore:
      return true;
    case Pattern::Form::bind:
      frame[pattern.slot] = given;
      return true;
    case Pattern::Form::equal: {
      Value hold;
      const Value* wanted = peek(pattern.expression, frame, hold);
      return wanted != nullptr && *wanted == given;
    }
    case Pattern::Form::array: {
      const auto items = given.items();
      if (!given.is_array() || items.size() != pattern.items.size()) return false;
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (!match(pattern.items[i], items[i], frame)) return false;
      }
      return true;
    }
    case Pattern::Form::object: {
      if (!given.is_object() || given.size() != pattern.keys.size()) return false;
      for (std::size_t i = 0; i < pattern.keys.size(); ++i) {
        Value hold;
        const Value* key = peek(pattern.keys[i], frame, hold);
        const Value* member = key == nullptr ? nullptr : given.find(*key);
        if (member == nullptr || !match(pattern.items[i], *member, frame)) return false;
      }
      return true;
    }
  }
  return false;
}

Machine::Flow Machine::scan_value(const Value& base, std::span<const Pattern> path, Value* frame, Take take) {
  if (path.empty()) return take(base);
  const Pattern& first = path[0];
  const auto rest = path.subspan(1);
  const auto lost = [&] { return failed_ ? Flow::stop : Flow::on; };
  if (first.form == Pattern::Form::equal) {
    Value hold;
    const Value* key = peek(first.expression, frame, hold);
    const Value* found = key == nullptr ? nullptr : base.find(*key);
    return found == nullptr ? lost() : scan_value(*found, rest, frame, take);
  }
  const auto visit = [&](const Value& key, const Value& value) {
    if (!charge({})) return Flow::stop;
    if (!match(first, key, frame)) return lost();
    return scan_value(value, rest, frame, take);
  };
  const Value kept = base;  // what is iterated stays, whatever the statements behind do
  if (kept.is_array()) {
    std::int64_t index = 0;
    for (const auto& item : kept.items()) {
      if (visit(Value::integer(index++), item) == Flow::stop) return Flow::stop;
    }
  } else if (kept.is_set()) {
    for (const auto& item : kept.items()) {
      if (visit(item, item) == Flow::stop) return Flow::stop;
    }
  } else {
    for (const auto& member : kept.members()) {
      if (visit(member.key, member.value) == Flow::stop) return Flow::stop;
    }
  }
  return Flow::on;
}

bool Machine::holds_for_every(const Step& step, Value* frame) {
  const Value domain = value(step.expression, frame);
  if (!domain.is_collection()) return false;
  const auto holds = [&](const Value& key, const Value& item) {
    if (!charge(step.at)) return false;
    if (step.path.size() == 2 && !match(step.path[0], key, frame)) return false;
    return match(step.path.back(), item, frame) && answers(*step.plan, frame);
  };
  std::int64_t index = 0;
  for (const auto& item : domain.items()) {
    if (!holds(domain.is_set() ? item : Value::integer(index++), item)) return false;
  }
  for (const auto& member : domain.members()) {
    if (!holds(member.key, member.value)) return false;
  }
  return true;
}

Machine::Flow Machine::relate(const Step& step, Value* frame, Take take) {
  const Value all = value(step.expression, frame);
  if (failed_) return Flow::stop;
  for (const auto& one : all.items()) {
    if (!charge(step.at) || take(one) == Flow::stop) return Flow::stop;
  }
  return Flow::on;
}

}  // namespace openshell::policy::rego
