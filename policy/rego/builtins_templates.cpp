#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/text_template.hpp"

namespace openshell::policy::rego {
namespace {

BuiltinResult render_template(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  if (!a[1].is_object()) return operand_error(2, "object", a[1]);
  if (auto status = context.charge(1 + a[0].text().size() / 16); !status.ok()) return status;
  const auto nodes = text_template::parse(a[0].text());
  if (!nodes.ok()) return nodes.status();
  const auto text = text_template::render(context, *nodes, a[1]);
  if (!text.ok()) return text.status();
  return Value::string(*text);
}

}  // namespace

const BuiltinTable& template_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"strings.render_template", {string(), object_of(string(), any())}, string(), render_template},
  };
  return table;
}

}  // namespace openshell::policy::rego
