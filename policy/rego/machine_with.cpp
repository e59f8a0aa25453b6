// `with`: the same statement in another world.
#include "policy/rego/machine.hpp"

namespace openshell::policy::rego {

Machine::Flow Machine::with(const Step& step, Value* frame, Sink sink) {
  World* const outer = world_;
  World inner;
  inner.input = outer->input;
  inner.data = outer->data;
  inner.replaced = outer->replaced;
  inner.mocks = outer->mocks;
  inner.documents.resize(program_.groups.size());
  for (const auto& override : step.overrides) {
    if (!apply(override, inner, frame)) return failed_ ? Flow::stop : Flow::on;
  }
  world_ = &inner;
  const Flow flow = steps(*step.plan, 0, frame, [&] {
    world_ = outer;
    const Flow after = sink();
    world_ = &inner;
    return after;
  });
  world_ = outer;
  return flow;
}

bool Machine::apply(const Override& override, World& world, Value* frame) {
  if (override.form == Override::Form::function) {
    Mock mock;
    mock.builtin = override.by_builtin;
    mock.group = override.by_group;
    if (mock.builtin == nullptr && mock.group == nullptr) {
      mock.value = value(override.value, frame);
      if (!mock.value.is_defined()) return false;
    }
    const void* function = override.builtin != nullptr ? static_cast<const void*>(override.builtin) : override.group;
    world.mocks.insert_or_assign(function, std::move(mock));
    return true;
  }
  Value given = value(override.value, frame);
  if (!given.is_defined()) return false;
  if (override.form == Override::Form::input) {
    bool clash = false;
    world.input = put(world.input, override.path, given, clash);
    return true;
  }
  const auto placed = [&](auto&& self, const Replaced* into, std::span<const Value> path) -> std::shared_ptr<const Replaced> {
    auto made = into == nullptr ? std::make_shared<Replaced>() : std::make_shared<Replaced>(*into);
    if (path.empty()) {
      made->value = given;
      made->children.clear();
      return made;
    }
    if (made->value.is_defined()) {
      bool clash = false;
      made->value = put(made->value, path, given, clash);
      return made;
    }
    const std::string key(path[0].text());
    const auto found = made->children.find(key);
    made->children[key] = self(self, found == made->children.end() ? nullptr : found->second.get(), path.subspan(1));
    return made;
  };
  world.replaced = placed(placed, world.replaced.get(), override.path);
  return true;
}

/// `into` with `value` at `path`; what stands in the way is replaced by objects.
Value Machine::put(const Value& into, std::span<const Value> path, const Value& value, bool& clash) {
  if (path.empty()) return value;
  clash = clash || (into.is_defined() && !into.is_object());
  const Value* below = into.is_object() ? into.find(path[0]) : nullptr;
  std::vector<Member> members(into.members().begin(), into.members().end());
  members.push_back({path[0], put(below == nullptr ? Value() : *below, path.subspan(1), value, clash)});
  return Value::object(std::move(members));
}

}  // namespace openshell::policy::rego
