#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"

#include <absl/container/flat_hash_set.h>

#include <algorithm>

namespace openshell::policy::rego {
namespace {

bool is_list(const Value& value) { return value.is_array() || value.is_set(); }

absl::Status check_graph(Arguments a) {
  if (!a[0].is_object()) return operand_error(1, "object", a[0]);
  if (!is_list(a[1])) return operand_error(2, "{array, set}", a[1]);
  return absl::OkStatus();
}

/// Nodes that the graph has, met from the first ones along its edges.
BuiltinResult reachable(QueryContext& context, Arguments a) {
  if (auto status = check_graph(a); !status.ok()) return status;
  std::vector<Value> queue(a[1].items().begin(), a[1].items().end());
  absl::flat_hash_set<Value> seen;
  std::vector<Value> found;
  while (!queue.empty()) {
    if (auto status = context.charge(1); !status.ok()) return status;
    const Value node = std::move(queue.back());
    queue.pop_back();
    const Value* edges = a[0].find(node);
    if (edges == nullptr || !seen.insert(node).second) continue;
    found.push_back(node);
    for (const auto& next : edges->items()) {
      if (!seen.contains(next)) queue.push_back(next);
    }
    if (auto status = context.room_for(std::max(queue.size(), found.size())); !status.ok()) return status;
  }
  return Value::set(std::move(found));
}

struct Walk {
  QueryContext& context;
  const Value& graph;
  std::vector<Value> paths;
  std::vector<Value> trail;

  absl::Status end_here() {
    paths.push_back(Value::array(trail));
    return context.room_for(paths.size());
  }

  /// Adds every longest path which begins with the trail and goes on with `node`. A path ends where its next node is on it already; a node
  /// may follow itself once, where that is the first of its edges (so does the language's own program).
  absl::Status go_on(const Value& node) {
    if (auto status = context.charge(1 + trail.size() / 8); !status.ok()) return status;
    if (trail.size() > kMaxJsonNesting) return absl::ResourceExhaustedError("limit exceeded: elements");
    const Value* edges = graph.find(node);
    if (edges == nullptr) return end_here();
    const auto ancestors = trail.size();
    trail.push_back(node);
    absl::Status status;
    if (edges->size() == 0) status = end_here();
    bool self_counts = false;
    for (const auto& next : edges->items()) {
      const auto known = trail.begin() + static_cast<std::ptrdiff_t>(ancestors + (self_counts ? 1 : 0));
      const bool closes = std::find(trail.begin(), known, next) != known;
      self_counts = self_counts || !closes;
      status = closes ? end_here() : go_on(next);
      if (!status.ok()) break;
    }
    trail.pop_back();
    return status;
  }
};

BuiltinResult reachable_paths(QueryContext& context, Arguments a) {
  if (auto status = check_graph(a); !status.ok()) return status;
  Walk walk{context, a[0], {}, {}};
  for (const auto& node : a[1].items()) {
    if (a[0].find(node) == nullptr) continue;
    if (auto status = walk.go_on(node); !status.ok()) return status;
  }
  return Value::set(std::move(walk.paths));
}

absl::Status visit(QueryContext& context, const Value& value, std::vector<Value>& path, std::vector<Value>& found) {
  if (auto status = context.charge(1 + path.size() / 8); !status.ok()) return status;
  if (auto status = context.room_for(found.size()); !status.ok()) return status;
  found.push_back(Value::array({Value::array(path), value}));
  const auto below = [&](const Value& key, const Value& item) {
    path.push_back(key);
    auto status = visit(context, item, path, found);
    path.pop_back();
    return status;
  };
  std::int64_t index = 0;
  for (const auto& item : value.items()) {
    if (auto status = below(value.is_set() ? item : Value::integer(index++), item); !status.ok()) return status;
  }
  for (const auto& member : value.members()) {
    if (auto status = below(member.key, member.value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

/// Every value in the given one with its path, itself first.
BuiltinResult walk(QueryContext& context, Arguments a) {
  std::vector<Value> path;
  std::vector<Value> found;
  if (auto status = visit(context, a[0], path, found); !status.ok()) return status;
  return Value::array(std::move(found));
}

}  // namespace

const BuiltinTable& graph_builtins() {
  using namespace types;
  static const Type list = any_of({array_of(any()), set_of(any())});
  static const Type graph = object_of(any(), list);
  static const BuiltinTable table = {
      {"graph.reachable", {graph, list}, set_of(any()), reachable},
      {"graph.reachable_paths", {graph, list}, set_of(array_of(any())), reachable_paths},
      {"walk", {any()}, tuple({array_of(any()), any()}), walk, false, true},
  };
  return table;
}

}  // namespace openshell::policy::rego
