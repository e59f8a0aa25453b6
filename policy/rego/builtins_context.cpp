#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"

#include <algorithm>

namespace openshell::policy::rego {
namespace {

BuiltinResult trace(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  return Value::boolean(true);
}

/// Nothing of the process that evaluates is shown.
BuiltinResult runtime(QueryContext& /*context*/, Arguments /*arguments*/) { return Value::object({}); }

/// The evaluator answers these itself where a rule is evaluated; what calls them elsewhere is wrong.
BuiltinResult outside_of_rule(std::string_view name) {
  return failure("the ", name, " function must only be called within the scope of a rule");
}
BuiltinResult chain(QueryContext& /*context*/, Arguments /*arguments*/) { return outside_of_rule("rego.metadata.chain"); }
BuiltinResult rule(QueryContext& /*context*/, Arguments /*arguments*/) { return outside_of_rule("rego.metadata.rule"); }

/// The parts of a text with values in it, joined; an empty set is a part that was undefined.
BuiltinResult template_string(QueryContext& context, Arguments a) {
  if (!a[0].is_array()) return operand_error(1, "array", a[0]);
  std::string out;
  for (const auto& item : a[0].items()) {
    const Value* part = &item;
    if (item.is_set()) {
      if (item.size() == 0) {
        out += "<undefined>";
        continue;
      }
      part = item.items().data();
    }
    if (part->is_string()) {
      out += part->text();
    } else {
      append_rego(out, *part);
    }
    if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  }
  return Value::string(out);
}

/// The first parts, or the last ones where the number is negative; without a separator every character is a part.
BuiltinResult split_n(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  if (!a[2].is_number()) return operand_error(3, "number", a[2]);
  const auto most = a[2].as_integer();
  if (!most) return misuse("operand 3 must be integer number but got floating-point number");
  const auto text = a[0].text();
  const auto separator = a[1].text();
  if (auto status = context.charge(text.size() / 64); !status.ok()) return status;
  std::vector<Value> parts;
  for (std::size_t at = 0; separator.empty() ? at < text.size() : at <= text.size();) {
    const auto end = separator.empty() ? at + character_size(text, at) : std::min(text.find(separator, at), text.size());
    parts.push_back(Value::string(text.substr(at, end - at)));
    at = separator.empty() ? end : end + separator.size();
    if (!separator.empty() && end == text.size()) break;
  }
  if (auto status = context.room_for(parts.size()); !status.ok()) return status;
  const auto count = static_cast<std::int64_t>(parts.size());
  if (*most >= 0 && *most < count) parts.resize(static_cast<std::size_t>(*most));
  if (*most < 0 && *most > -count) parts.erase(parts.begin(), parts.end() + *most);
  return Value::array(std::move(parts));
}

}  // namespace

const BuiltinTable& context_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"internal.template_string", {array_of(any())}, string(), template_string},
      {"opa.runtime", {}, object_of(string(), any()), runtime, true},
      {"rego.metadata.chain", {}, array_of(any()), chain},
      {"rego.metadata.rule", {}, any(), rule},
      {"strings.split_n", {string(), string(), number()}, array_of(string()), split_n},
      {"trace", {string()}, boolean(), trace},
  };
  return table;
}

}  // namespace openshell::policy::rego
