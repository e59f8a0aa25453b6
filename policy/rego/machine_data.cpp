// Documents under `data`: what rules give, laid over what was loaded, under what `with` puts there.
#include "policy/rego/machine.hpp"

#include <algorithm>
#include <set>

namespace openshell::policy::rego {
namespace {

Pattern fixed(Value value) {
  Pattern made;
  made.form = Pattern::Form::equal;
  made.expression.constant = std::move(value);
  return made;
}

void path_of(const Node* node, std::vector<Pattern>& path) {
  if (node->parent == nullptr) return;
  path_of(node->parent, path);
  path.push_back(fixed(Value::string(node->key)));
}

Value with_members(const Value& object, std::map<Value, Value> over) {
  for (const auto& member : object.members()) over.try_emplace(member.key, member.value);
  std::vector<Member> members;
  for (auto& [key, value] : over) {
    if (value.is_defined()) members.push_back({key, value});
  }
  return Value::sorted_object(std::move(members));
}

/// Objects become one; `clash` where two other values stand at one place.
Value laid_over(const Value& under, const Value& over, bool& clash) {
  if (!under.is_object() || !over.is_object()) {
    clash = clash || (under.is_defined() && over.is_defined() && !(under == over));
    return over.is_defined() ? over : under;
  }
  std::map<Value, Value> members;
  for (const auto& member : over.members()) {
    const Value* below = under.find(member.key);
    members[member.key] = below == nullptr ? member.value : laid_over(*below, member.value, clash);
  }
  return with_members(under, std::move(members));
}

}  // namespace

const Value* Machine::base_of(const Node& node) {
  if (node.parent == nullptr) return world_->data.is_defined() ? &world_->data : nullptr;
  const Value* above = base_of(*node.parent);
  return above == nullptr ? nullptr : above->find(std::string_view(node.key));
}

/// What the rules of a node give, with those of nodes below it.
Value Machine::document(const Node& node) {
  const RuleGroup& group = *node.group;
  if (group.form == RuleGroup::Form::function) return {};
  Value own = rule(group);
  if (failed_) return {};
  const bool more = std::any_of(node.children.begin(), node.children.end(), [](const auto& child) { return child.second->has_documents; });
  if (!more) return own;
  if (const auto found = world_->nodes.find(&node); found != world_->nodes.end()) return found->second;
  std::map<Value, Value> members;
  for (const auto& [key, child] : node.children) {
    Value below = whole(child.get(), nullptr, nullptr);
    if (failed_) return {};
    if (below.is_defined()) members[Value::string(key)] = below;
  }
  const Value children = with_members(Value::sorted_object({}), std::move(members));
  bool clash = false;
  Value made = own.is_defined() ? laid_over(own, children, clash) : children;
  if (clash) {
    fail(code::kConflict, group.at, "object keys must be unique");
    return {};
  }
  world_->nodes[&node] = made;
  return made;
}

/// All at and below a place; undefined where there is nothing.
Value Machine::whole(const Node* node, const Value* base, const Replaced* replaced) {
  if (replaced != nullptr && replaced->value.is_defined()) return replaced->value;
  if (node != nullptr && node->group) {
    Value own = document(*node);
    return replaced == nullptr || failed_ ? own : overlaid(own, *replaced);
  }
  if (replaced == nullptr && (node == nullptr || !node->has_documents)) return base == nullptr ? Value() : *base;
  std::map<Value, Value> members;
  if (node != nullptr) {
    for (const auto& [key, child] : node->children) {
      const Value* below = base == nullptr ? nullptr : base->find(std::string_view(key));
      const Replaced* put = nullptr;
      if (replaced != nullptr) {
        if (const auto found = replaced->children.find(key); found != replaced->children.end()) put = found->second.get();
      }
      members[Value::string(key)] = whole(child.get(), below, put);
      if (failed_) return {};
    }
  }
  if (replaced != nullptr) {
    for (const auto& [key, put] : replaced->children) {
      if (members.contains(Value::string(key))) continue;
      const Value* below = base == nullptr ? nullptr : base->find(std::string_view(key));
      members[Value::string(key)] = whole(nullptr, below, put.get());
    }
  }
  return with_members(base != nullptr && base->is_object() ? *base : Value(), std::move(members));
}

Value Machine::overlaid(const Value& document, const Replaced& replaced) {
  if (replaced.value.is_defined()) return replaced.value;
  std::map<Value, Value> members;
  for (const auto& [key, put] : replaced.children) {
    const Value* below = document.find(std::string_view(key));
    members[Value::string(key)] = overlaid(below == nullptr ? Value() : *below, *put);
  }
  return with_members(document, std::move(members));
}

Value Machine::data_value(const Expression& expression, Value* frame) {
  if (world_->replaced) {
    std::vector<Pattern> path;
    for (const auto& part : expression.parts) {
      Value key = value(part, frame);
      if (!key.is_defined()) return {};
      path.push_back(fixed(std::move(key)));
    }
    Value found;
    walk_replaced(expression, path, frame, [&](const Value& value) {
      found = value;
      return Flow::stop;
    });
    return failed_ ? Value() : found;
  }
  const Node* node = expression.node;
  const Value* base = node->group ? nullptr : base_of(*node);
  for (std::size_t i = 0;; ++i) {
    if (node != nullptr && node->group) {
      Value hold = document(*node);
      if (!hold.is_defined()) return {};
      if (i == expression.parts.size()) return hold;
      const Value* found = looked_up(expression, i, &hold, frame, hold);
      return found == nullptr ? Value() : *found;
    }
    if (node == nullptr && base == nullptr) return {};
    if (i == expression.parts.size()) return whole(node, base, nullptr);
    Value key_hold;
    const Value* key = peek(expression.parts[i], frame, key_hold);
    if (key == nullptr) return {};
    node = node != nullptr && key->is_string() ? node->child(key->text()) : nullptr;
    base = base == nullptr ? nullptr : base->find(*key);
  }
}

/// `path` follows after the fixed beginning that the expression holds.
Machine::Flow Machine::walk_replaced(const Expression& expression, std::span<const Pattern> path, Value* frame, Take take) {
  std::vector<Pattern> all;
  path_of(expression.node, all);
  all.insert(all.end(), path.begin(), path.end());
  const auto replaced = world_->replaced;
  return walk(&program_.root, world_->data.is_defined() ? &world_->data : nullptr, replaced.get(), all, frame, take);
}

Machine::Flow Machine::scan_data(const Step& step, Value* frame, Take take) {
  if (world_->replaced) return walk_replaced(step.expression, step.path, frame, take);
  const Node* node = step.expression.node;
  return walk(node, node->group ? nullptr : base_of(*node), nullptr, step.path, frame, take);
}

Machine::Flow Machine::walk(const Node* node, const Value* base, const Replaced* replaced, std::span<const Pattern> path, Value* frame,
                            Take take) {
  const auto lost = [&] { return failed_ ? Flow::stop : Flow::on; };
  if (replaced != nullptr && replaced->value.is_defined()) return scan_value(replaced->value, path, frame, take);
  if ((node != nullptr && node->group) || path.empty()) {
    const Value document = whole(node, base, replaced);
    return document.is_defined() && !failed_ ? scan_value(document, path, frame, take) : lost();
  }
  if (node == nullptr && replaced == nullptr) return base == nullptr ? lost() : scan_value(*base, path, frame, take);
  const Pattern& first = path[0];
  const auto enter = [&](const Value& key) {
    const Node* below = node != nullptr && key.is_string() ? node->child(key.text()) : nullptr;
    const Value* under = base == nullptr ? nullptr : base->find(key);
    const Replaced* put = nullptr;
    if (replaced != nullptr && key.is_string()) {
      if (const auto found = replaced->children.find(key.text()); found != replaced->children.end()) put = found->second.get();
    }
    if (below == nullptr && under == nullptr && put == nullptr) return Flow::on;
    return walk(below, under, put, path.subspan(1), frame, take);
  };
  if (first.form == Pattern::Form::equal) {
    const Value key = value(first.expression, frame);
    return key.is_defined() ? enter(key) : lost();
  }
  std::set<Value> keys;
  if (base != nullptr) {
    for (const auto& member : base->members()) keys.insert(member.key);
  }
  if (node != nullptr) {
    for (const auto& [key, child] : node->children) keys.insert(Value::string(key));
  }
  if (replaced != nullptr) {
    for (const auto& [key, put] : replaced->children) keys.insert(Value::string(key));
  }
  for (const auto& key : keys) {
    if (!charge({})) return Flow::stop;
    if (!match(first, key, frame)) {
      if (failed_) return Flow::stop;
      continue;
    }
    if (enter(key) == Flow::stop) return Flow::stop;
  }
  return lost();
}

}  // namespace openshell::policy::rego
