#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"

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

}  // namespace

const BuiltinTable& context_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"internal.template_string", {array_of(any())}, string(), template_string},
      {"opa.runtime", {}, object_of(string(), any()), runtime, true},
      {"rego.metadata.chain", {}, array_of(any()), chain},
      {"rego.metadata.rule", {}, any(), rule},
      {"trace", {string()}, boolean(), trace},
  };
  return table;
}

}  // namespace openshell::policy::rego
