#include "policy/rego/patch.hpp"

#include "policy/rego/number.hpp"
#include "policy/rego/operands.hpp"

#include <algorithm>
#include <functional>
#include <optional>

namespace openshell::policy::rego {
namespace {

using Path = std::span<const Value>;

std::string unescape_step(std::string_view step) {
  std::string out;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1')) {
      out += step[++i] == '0' ? '~' : '/';
    } else {
      out += step[i];
    }
  }
  return out;
}

/// Where a step leads in an array: -1 for `-`, its end.
absl::StatusOr<std::int64_t> index_of(const Value& step) {
  if (step.is_number()) {
    const auto index = step.as_integer();
    if (!index) return failure("expected integer index, got ", number_text(step));
    return *index;
  }
  const auto text = step.is_string() ? step.text() : std::string_view{};
  if (text == "-") return -1;
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return failure("invalid integer index for array: ", to_rego(step));
  }
  if (text.size() > 1 && text[0] == '0') return failure("leading zeros are not allowed in JSON paths");
  return std::stoll(std::string(text));
}

absl::StatusOr<Value> look_up(const Value& document, Path path) {
  const Value* at = &document;
  for (const auto& step : path) {
    const auto missing = [&] {
      return failure("path ", to_rego(step), " does not exist in ", kind_name(at->kind()), " term ", to_rego(*at));
    };
    if (at->is_array()) {
      const auto index = index_of(step);
      if (!index.ok()) return index.status();
      if (*index < 0 || static_cast<std::size_t>(*index) >= at->size()) return missing();
      at = &at->items()[static_cast<std::size_t>(*index)];
    } else if (at->is_collection()) {
      const Value* next = at->find(step);
      if (next == nullptr) return missing();
      at = next;
    } else {
      return missing();
    }
  }
  return *at;
}

using Change = std::function<absl::StatusOr<Value>(const Value& parent, const Value& step)>;

/// The document with the collection that holds the last step of the path changed.
absl::StatusOr<Value> with_parent(const Value& at, Path path, const Change& change) {
  if (path.size() == 1) return change(at, path[0]);
  const auto child = look_up(at, path.first(1));
  if (!child.ok()) return child.status();
  auto changed = with_parent(*child, path.subspan(1), change);
  if (!changed.ok()) return changed.status();
  if (at.is_object()) {
    std::vector<Member> members(at.members().begin(), at.members().end());
    for (auto& member : members) {
      if (member.key == path[0]) member.value = *changed;
    }
    return Value::sorted_object(std::move(members));
  }
  std::vector<Value> items(at.items().begin(), at.items().end());
  if (at.is_set()) {
    std::erase(items, *child);
    items.push_back(*std::move(changed));
    return Value::set(std::move(items));
  }
  const auto index = index_of(path[0]);
  if (!index.ok()) return index.status();
  items[static_cast<std::size_t>(*index)] = *std::move(changed);
  return Value::array(std::move(items));
}

absl::StatusOr<Value> insert(const Value& parent, const Value& step, const Value& value) {
  if (parent.is_object()) {
    std::vector<Member> members(parent.members().begin(), parent.members().end());
    members.push_back({step, value});
    return Value::object(std::move(members));
  }
  std::vector<Value> items(parent.items().begin(), parent.items().end());
  if (parent.is_set()) {
    if (!(step == value)) return failure("set key ", to_rego(step), " does not equal value to be inserted ", to_rego(value));
    items.push_back(value);
    return Value::set(std::move(items));
  }
  if (!parent.is_array())
    return failure("path ", to_rego(step), " does not exist in ", kind_name(parent.kind()), " term ", to_rego(parent));
  const auto index = index_of(step);
  if (!index.ok()) return index.status();
  const std::int64_t at = *index == -1 && step.is_string() ? static_cast<std::int64_t>(items.size()) : *index;
  if (at < 0 || static_cast<std::size_t>(at) > items.size()) return failure("index for array insertion out of bounds");
  items.insert(items.begin() + at, value);
  return Value::array(std::move(items));
}

absl::StatusOr<Value> erase(const Value& parent, const Value& step) {
  const auto missing = [&] { return failure("cannot delete child key ", to_rego(step), " that does not exist"); };
  if (parent.is_object()) {
    if (parent.find(step) == nullptr) return missing();
    std::vector<Member> members(parent.members().begin(), parent.members().end());
    std::erase_if(members, [&](const Member& member) { return member.key == step; });
    return Value::sorted_object(std::move(members));
  }
  std::vector<Value> items(parent.items().begin(), parent.items().end());
  if (parent.is_set()) {
    if (parent.find(step) == nullptr) return missing();
    std::erase(items, step);
    return Value::sorted_set(std::move(items));
  }
  if (!parent.is_array()) return missing();
  const auto index = index_of(step);
  if (!index.ok()) return index.status();
  if (*index < 0 || static_cast<std::size_t>(*index) >= items.size()) return missing();
  items.erase(items.begin() + *index);
  return Value::array(std::move(items));
}

absl::StatusOr<Value> insert_at(const Value& document, Path path, const Value& value) {
  if (path.empty()) return value;
  return with_parent(document, path, [&](const Value& parent, const Value& step) { return insert(parent, step, value); });
}

absl::StatusOr<Value> erase_at(const Value& document, Path path) {
  if (path.empty()) return Value();
  return with_parent(document, path, [](const Value& parent, const Value& step) { return erase(parent, step); });
}

absl::StatusOr<Value> replace_at(const Value& document, Path path, const Value& value) {
  if (path.empty()) return value;
  return with_parent(document, path, [&](const Value& parent, const Value& step) -> absl::StatusOr<Value> {
    auto without = erase(parent, step);
    if (!without.ok()) return without;
    return insert(*without, parent.is_set() ? value : step, value);
  });
}

absl::StatusOr<const Value*> attribute(const Value& operation, std::string_view name) {
  const Value* found = operation.find(name);
  if (found == nullptr) return failure("missing required attribute '", name, "'");
  return found;
}

}  // namespace

std::string number_key(const Value& number) { return number.is_number() ? number_text(number) : std::string(); }

absl::StatusOr<std::vector<Value>> read_path(const Value& path) {
  if (path.is_array()) return std::vector<Value>(path.items().begin(), path.items().end());
  if (!path.is_string()) return misuse("must be string or array");
  auto text = path.text();
  std::vector<Value> steps;
  if (text.empty()) return steps;
  while (text.starts_with("/")) text.remove_prefix(1);
  for (const auto step : split_at(text, '/')) steps.push_back(Value::string(unescape_step(step)));
  return steps;
}

absl::StatusOr<Value> apply_patch(const Value& document, const Value& operation) {
  if (!operation.is_object()) return misuse("must be an array of JSON-Patch objects, but at least one element is not an object");
  const auto op = attribute(operation, "op");
  if (!op.ok()) return op.status();
  if (!(*op)->is_string()) return failure("attribute 'op' must be a string");
  const auto name = (*op)->text();
  const auto where = attribute(operation, "path");
  if (!where.ok()) return where.status();
  const auto path = read_path(**where);
  if (!path.ok()) return path.status();

  if (name == "remove") return erase_at(document, *path);
  if (name == "add" || name == "replace" || name == "test") {
    const auto value = attribute(operation, "value");
    if (!value.ok()) return value.status();
    if (name == "add") return insert_at(document, *path, **value);
    if (name == "replace") return replace_at(document, *path, **value);
    const auto found = look_up(document, *path);
    if (!found.ok()) return found.status();
    if (*found == **value) return document;
    return failure("value from EditTree != patch value.\n\nExpected: ", to_rego(**value), "\n\nFound: ", to_rego(*found));
  }
  if (name == "move" || name == "copy") {
    const auto from = attribute(operation, "from");
    if (!from.ok()) return from.status();
    const auto source = read_path(**from);
    if (!source.ok()) return source.status();
    const auto value = look_up(document, *source);
    if (!value.ok()) return value.status();
    if (name == "copy") return insert_at(document, *path, *value);
    const auto without = erase_at(document, *source);
    if (!without.ok()) return without.status();
    return insert_at(*without, *path, *value);
  }
  return failure("unrecognized op: '", name, "'");
}

}  // namespace openshell::policy::rego
