#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/patch.hpp"

#include <map>
#include <optional>

namespace openshell::policy::rego {
namespace {

/// Which parts of a document paths name. A leaf names all below.
struct PathTree {
  bool leaf = false;
  std::map<Value, PathTree> below;
};

void add_path(PathTree& tree, const std::vector<Value>& path) {
  PathTree* at = &tree;
  for (const auto& step : path) at = &at->below[step];
  at->leaf = true;
}

absl::StatusOr<PathTree> read_paths(QueryContext& context, const Value& paths) {
  if (!paths.is_array() && !paths.is_set()) return operand_error(2, "one of {set, array}", paths);
  PathTree tree;
  for (const auto& item : paths.items()) {
    auto path = read_path(item);
    if (!path.ok()) return operand_error(2, "one of {set, array} containing string paths or array of path segments", item);
    if (path->empty()) continue;
    if (auto status = context.charge(path->size()); !status.ok()) return status;
    add_path(tree, *path);
  }
  return tree;
}

/// An array is entered by text that is a number, never by a number.
const PathTree* branch(const PathTree& tree, const Value& key, bool is_array) {
  const auto found = tree.below.find(is_array ? Value::string(number_key(key)) : key);
  return found == tree.below.end() ? nullptr : &found->second;
}

Value keep(const Value& value, const PathTree& tree);

std::optional<Value> keep_part(const Value& item, const PathTree* below) {
  if (below == nullptr) return std::nullopt;
  if (below->leaf || !item.is_collection()) return item;
  return keep(item, *below);
}

Value keep(const Value& value, const PathTree& tree) {
  if (value.is_object()) {
    std::vector<Member> members;
    for (const auto& member : value.members()) {
      if (auto part = keep_part(member.value, branch(tree, member.key, false))) members.push_back({member.key, *std::move(part)});
    }
    return Value::sorted_object(std::move(members));
  }
  std::vector<Value> items;
  std::int64_t index = 0;
  for (const auto& item : value.items()) {
    const Value key = value.is_set() ? item : Value::integer(index++);
    if (auto part = keep_part(item, branch(tree, key, value.is_array()))) items.push_back(*std::move(part));
  }
  return value.is_set() ? Value::set(std::move(items)) : Value::array(std::move(items));
}

BuiltinResult filter(QueryContext& context, Arguments a) {
  if (!a[0].is_object()) return operand_error(1, "object", a[0]);
  const auto tree = read_paths(context, a[1]);
  if (!tree.ok()) return tree.status();
  return keep(a[0], *tree);
}

Value drop(const Value& value, const PathTree& tree) {
  const auto part = [&](const Value& key, const Value& item) -> std::optional<Value> {
    const PathTree* below = branch(tree, key, value.is_array());
    if (below == nullptr) return item;
    if (below->leaf) return std::nullopt;
    return item.is_collection() ? drop(item, *below) : item;
  };
  if (value.is_object()) {
    std::vector<Member> members;
    for (const auto& member : value.members()) {
      if (auto left = part(member.key, member.value)) members.push_back({member.key, *std::move(left)});
    }
    return Value::sorted_object(std::move(members));
  }
  std::vector<Value> items;
  std::int64_t index = 0;
  for (const auto& item : value.items()) {
    if (auto left = part(value.is_set() ? item : Value::integer(index++), item)) items.push_back(*std::move(left));
  }
  return value.is_set() ? Value::set(std::move(items)) : Value::array(std::move(items));
}

BuiltinResult remove(QueryContext& context, Arguments a) {
  if (!a[0].is_object()) return operand_error(1, "object", a[0]);
  const auto tree = read_paths(context, a[1]);
  if (!tree.ok()) return tree.status();
  return drop(a[0], *tree);
}

BuiltinResult patch(QueryContext& context, Arguments a) {
  if (!a[1].is_array()) return operand_error(2, "array", a[1]);
  Value document = a[0];
  for (const auto& operation : a[1].items()) {
    if (auto status = context.charge(1 + document.size() / 8); !status.ok()) return status;
    auto next = apply_patch(document, operation);
    if (!next.ok()) return next.status();
    document = *std::move(next);
    if (auto status = context.room_for(document.size()); !status.ok()) return status;
  }
  return document;
}

}  // namespace

const BuiltinTable& json_path_builtins() {
  using namespace types;
  static const Type path = any_of({string(), array_of(any())});
  static const Type paths = any_of({array_of(path), set_of(path)});
  static const Type operation({{"op", string()}, {"path", any()}}, {any(), any()});
  static const Type document = object_of(any(), any());
  static const BuiltinTable table = {
      {"json.filter", {document, paths}, document, filter},
      {"json.patch", {any(), array_of(operation)}, any(), patch},
      {"json.remove", {document, paths}, document, remove},
  };
  return table;
}

}  // namespace openshell::policy::rego
