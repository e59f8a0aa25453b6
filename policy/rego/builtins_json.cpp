#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/operands.hpp"

namespace openshell::policy::rego {
namespace {

BuiltinResult marshal(QueryContext& context, Arguments a) {
  if (auto status = charge_whole(context, a[0]); !status.ok()) return status;
  std::string out;
  append_json(out, a[0], true);
  if (auto status = context.charge(out.size() / 256); !status.ok()) return status;
  if (auto status = context.room_for_text(out.size()); !status.ok()) return status;
  return Value::string(out);
}

struct Layout {
  std::string_view prefix;
  std::string_view indent = "\t";
};

void break_line(std::string& out, const Layout& layout, std::size_t depth) {
  out += '\n';
  out += layout.prefix;
  for (std::size_t i = 0; i < depth; ++i) out += layout.indent;
}

/// JSON over many lines, from the text in one line.
std::string spread(std::string_view json, const Layout& layout) {
  std::string out(layout.prefix);
  std::size_t depth = 0;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    switch (c) {
      case '"': {
        const auto begin = i++;
        while (i < json.size() && json[i] != '"') i += json[i] == '\\' ? 2 : 1;
        out += json.substr(begin, i - begin + 1);
        break;
      }
      case '{':
      case '[':
        out += c;
        if (i + 1 < json.size() && (json[i + 1] == '}' || json[i + 1] == ']')) {
          out += json[++i];
          break;
        }
        break_line(out, layout, ++depth);
        break;
      case '}':
      case ']':
        break_line(out, layout, --depth);
        out += c;
        break;
      case ',':
        out += c;
        break_line(out, layout, depth);
        break;
      case ':':
        out += ": ";
        break;
      default:
        out += c;
    }
  }
  return out;
}

BuiltinResult marshal_with_options(QueryContext& context, Arguments a) {
  if (!a[1].is_object()) return operand_error(2, "object", a[1]);
  Layout layout;
  bool pretty = false;
  bool pretty_is_given = false;
  for (const auto& member : a[1].members()) {
    if (!member.key.is_string()) return misuse("operand 2 must be object with string keys");
    const auto key = member.key.text();
    if (key == "pretty") {
      if (!member.value.is_boolean()) return misuse("operand 2 key \"pretty\" failed cast to bool");
      pretty = member.value.is_true();
      pretty_is_given = true;
    } else if (key == "indent" || key == "prefix") {
      if (!member.value.is_string())
        return misuse("operand 2 key ", quoted(key), " failed cast to string: operand 0 must be string but got ",
                      kind_name(member.value.kind()));
      (key == "indent" ? layout.indent : layout.prefix) = member.value.text();
    } else {
      return misuse("operand 2 object contained unknown key ", quoted(key));
    }
  }
  if (!pretty_is_given) pretty = a[1].find("indent") != nullptr || a[1].find("prefix") != nullptr;
  if (!pretty) return marshal(context, a.first(1));
  if (auto status = charge_whole(context, a[0]); !status.ok()) return status;
  const std::string line = to_json(a[0], true);
  if (auto status = context.room_for_text(line.size() + line.size() * (layout.indent.size() + layout.prefix.size())); !status.ok())
    return status;
  return Value::string(spread(line, layout));
}

BuiltinResult unmarshal(QueryContext& context, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  if (auto status = context.charge(a[0].text().size() / 64); !status.ok()) return status;
  auto value = parse_json(a[0].text());
  if (!value.ok()) return failure(std::string_view(value.status().message().data(), value.status().message().size()));
  return *std::move(value);
}

BuiltinResult is_valid(QueryContext& context, Arguments a) {
  if (!a[0].is_string()) return Value::boolean(false);
  if (auto status = context.charge(a[0].text().size() / 64); !status.ok()) return status;
  return Value::boolean(parse_json(a[0].text()).ok());
}

}  // namespace

const BuiltinTable& json_builtins() {
  using namespace types;
  static const Type options({{"indent", string()}, {"prefix", string()}, {"pretty", boolean()}}, {string(), any()});
  static const BuiltinTable table = {
      {"json.is_valid", {string()}, boolean(), is_valid},
      {"json.marshal", {any()}, string(), marshal},
      {"json.marshal_with_options", {any(), options}, string(), marshal_with_options},
      {"json.unmarshal", {string()}, any(), unmarshal},
  };
  return table;
}

}  // namespace openshell::policy::rego
