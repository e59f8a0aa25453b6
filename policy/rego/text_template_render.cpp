#include "policy/rego/operands.hpp"
#include "policy/rego/text_template.hpp"

#include <algorithm>

namespace openshell::policy::rego::text_template {
namespace {

/// A number of the data is text to the template, as it is to Go's; one of the template itself is a number.
struct Item {
  Value value;
  bool own = false;
};

bool holds(const Item& item) {
  const Value& value = item.value;
  if (!value.is_defined() || value.is_null()) return false;
  if (value.is_boolean()) return value.is_true();
  if (value.is_number()) return !item.own || value != Value::integer(0);
  return value.is_string() ? !value.text().empty() : value.size() != 0;
}

void append(std::string& out, const Value& value, bool inside) {
  if (value.is_string()) {
    out += value.text();
  } else if (!value.is_defined() || value.is_null()) {
    out += inside ? "<nil>" : "<undefined>";
  } else if (value.is_object()) {
    out += "map[";
    bool first = true;
    for (const auto& member : value.members()) {
      if (!std::exchange(first, false)) out += ' ';
      append(out, member.key, true);
      out += ':';
      append(out, member.value, true);
    }
    out += ']';
  } else if (value.is_array() || value.is_set()) {
    out += '[';
    bool first = true;
    for (const auto& item : value.items()) {
      if (!std::exchange(first, false)) out += ' ';
      append(out, item, true);
    }
    out += ']';
  } else {
    append_json(out, value);
  }
}

absl::StatusOr<Item> wrong(std::string_view function, std::string_view why) {
  return failure("template: error calling ", function, ": ", why);
}

std::string escaped(std::string_view function, std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (function == "urlquery") {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         std::string_view("-_.~").find(c) != std::string_view::npos;
      out += plain ? std::string(1, c) : c == ' ' ? "+" : text::cat("%", kDigits.substr(byte >> 4U, 1), kDigits.substr(byte & 15U, 1));
    } else if (function == "html") {
      out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&#34;" : c == '\'' ? "&#39;" : std::string(1, c);
    } else if (c == '\\' || c == '\'' || c == '"') {
      out += {'\\', c};
    } else if (byte < 0x20 || c == '<' || c == '>' || c == '&' || c == '=') {
      out += text::cat("\\u00", kDigits.substr(byte >> 4U, 1), kDigits.substr(byte & 15U, 1));
    } else {
      out += c;
    }
  }
  return out;
}

class Renderer {
 public:
  Renderer(QueryContext& context, const Value& data) : context_(context), variables_{{"$", {data, false}}} {}

  absl::Status list(const std::vector<Node>& nodes, const Item& dot) {
    for (const auto& node : nodes) {
      if (auto status = context_.charge(1); !status.ok()) return status;
      if (auto status = one(node, dot); !status.ok()) return status;
      if (auto status = context_.room_for_text(out.size()); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::string out;

 private:
  absl::Status one(const Node& node, const Item& dot) {
    if (node.form == Node::Form::text) {
      out += node.text;
      return absl::OkStatus();
    }
    const auto kept = variables_.size();
    const auto value = pipeline(node.pipeline, dot);
    if (!value.ok()) return value.status();
    if (node.form == Node::Form::output) {
      if (node.pipeline.variables.empty()) append(out, value->value, false);
      return absl::OkStatus();
    }
    absl::Status status;
    if (node.form == Node::Form::loop) {
      status = loop(node, *value, dot);
    } else {
      status = holds(*value) ? list(node.body, node.form == Node::Form::scope ? *value : dot) : list(node.otherwise, dot);
    }
    variables_.resize(kept);
    return status;
  }

  absl::Status loop(const Node& node, const Item& over, const Item& dot) {
    const Value& value = over.value;
    if (value.is_defined() && !value.is_null() && !value.is_collection())
      return failure("template: range can't iterate over ", to_json(value));
    if (value.size() == 0 || !value.is_collection()) return list(node.otherwise, dot);
    const auto kept = variables_.size();
    const auto pass = [&](const Value& key, const Value& item) {
      const auto& names = node.pipeline.variables;
      if (!names.empty()) variables_.push_back({names.back(), {item, false}});
      if (names.size() == 2) variables_.push_back({names.front(), {key, true}});
      auto status = list(node.body, {item, false});
      variables_.resize(kept);
      return status;
    };
    std::int64_t index = 0;
    for (const auto& item : value.items()) {
      if (auto status = pass(Value::integer(index++), item); !status.ok()) return status;
    }
    for (const auto& member : value.members()) {
      if (auto status = pass(member.key, member.value); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Item> pipeline(const Pipeline& pipeline, const Item& dot) {
    Item last;
    bool first = true;
    for (const auto& command : pipeline.commands) {
      auto value = this->command(command, dot, std::exchange(first, false) ? nullptr : &last);
      if (!value.ok()) return value.status();
      last = std::move(*value);
    }
    if (pipeline.variables.size() == 1) {
      const auto& name = pipeline.variables[0];
      const auto known = std::find_if(variables_.rbegin(), variables_.rend(), [&](const auto& v) { return v.first == name; });
      if (pipeline.declares) {
        variables_.push_back({name, last});
      } else if (known == variables_.rend()) {
        return failure("template: undefined variable ", quoted(name));
      } else {
        known->second = last;
      }
    }
    return last;
  }

  absl::StatusOr<Item> command(const Command& command, const Item& dot, const Item* last) {
    if (auto status = context_.charge(1); !status.ok()) return status;
    if (command[0].form != Operand::Form::function) {
      if (command.size() > 1 || last != nullptr) return failure("template: can't give argument to non-function");
      return operand(command[0], dot);
    }
    std::vector<Item> arguments;
    for (std::size_t i = 1; i < command.size(); ++i) {
      auto value = operand(command[i], dot);
      if (!value.ok()) return value.status();
      arguments.push_back(std::move(*value));
    }
    if (last != nullptr) arguments.push_back(*last);
    return call(command[0].name, arguments);
  }

  absl::StatusOr<Item> operand(const Operand& operand, const Item& dot) {
    Item item;
    switch (operand.form) {
      case Operand::Form::literal:
        return Item{operand.literal, true};
      case Operand::Form::function:
        return call(operand.name, {});
      case Operand::Form::inner: {
        auto value = pipeline(*operand.inner, dot);
        if (!value.ok()) return value.status();
        item = std::move(*value);
        break;
      }
      case Operand::Form::place: {
        if (operand.name.empty()) {
          item = dot;
          break;
        }
        const auto known = std::find_if(variables_.rbegin(), variables_.rend(), [&](const auto& v) { return v.first == operand.name; });
        if (known == variables_.rend()) return failure("template: undefined variable ", quoted(operand.name));
        item = known->second;
        break;
      }
    }
    for (const auto& field : operand.fields) {
      if (!item.value.is_defined() || item.value.is_null()) return failure("template: nil data; no entry for key ", quoted(field));
      if (!item.value.is_object()) return failure("template: can't evaluate field ", field, " in type interface {}");
      const Value* found = item.value.find(Value::string(field));
      item = {found == nullptr ? Value() : *found, false};
    }
    return item;
  }

  absl::StatusOr<Item> call(const std::string& name, const std::vector<Item>& a) {
    if (name == "and" || name == "or") {
      for (const auto& item : a) {
        if (holds(item) == (name == "or")) return item;
      }
      return a.empty() ? wrong(name, "wrong number of args") : absl::StatusOr<Item>(a.back());
    }
    if (name == "print" || name == "println") return print(name == "println", a);
    if (name == "html" || name == "js" || name == "urlquery") {
      const auto text = print(false, a);
      return Item{Value::string(escaped(name, text->value.text())), false};
    }
    if (a.empty()) return wrong(name, "wrong number of args");
    if (name == "not") return Item{Value::boolean(!holds(a[0])), true};
    if (name == "len") {
      if (!a[0].value.is_string() && !a[0].value.is_collection()) return wrong(name, "len of a value that has none");
      return Item{Value::integer(static_cast<std::int64_t>(a[0].value.is_string() ? a[0].value.text().size() : a[0].value.size())), true};
    }
    if (name == "index") return index(a);
    if (name == "slice") return slice(a);
    if (name == "printf") return format(a);
    return compare(name, a);
  }

  /// Spaces between all where it is a line, else between two that are no texts.
  static absl::StatusOr<Item> print(bool line, const std::vector<Item>& a) {
    std::string text;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (i != 0 && (line || (!is_text(a[i]) && !is_text(a[i - 1])))) text += ' ';
      append(text, a[i].value, true);
    }
    return Item{Value::string(line ? text + "\n" : text), false};
  }
  static bool is_text(const Item& item) { return item.value.is_string(); }

  static absl::StatusOr<Item> index(const std::vector<Item>& a) {
    Value at = a[0].value;
    for (std::size_t i = 1; i < a.size(); ++i) {
      if (at.is_object()) {
        const Value* found = at.find(a[i].value);
        at = found == nullptr ? Value() : *found;
        continue;
      }
      const auto place = a[i].value.as_integer();
      if (!at.is_array() || !place) return wrong("index", "can't index item");
      if (*place < 0 || static_cast<std::size_t>(*place) >= at.size()) return wrong("index", "index out of range");
      at = Value(at.items()[static_cast<std::size_t>(*place)]);
    }
    return Item{at, false};
  }

  static absl::StatusOr<Item> slice(const std::vector<Item>& a) {
    const Value& whole = a[0].value;
    const std::size_t size = whole.is_string() ? whole.text().size() : whole.size();
    if (!whole.is_string() && !whole.is_array()) return wrong("slice", "can't slice item");
    std::size_t ends[2] = {0, size};
    for (std::size_t i = 1; i < a.size() && i < 3; ++i) {
      const auto place = a[i].value.as_integer();
      if (!place || *place < 0 || static_cast<std::size_t>(*place) > size) return wrong("slice", "index out of range");
      ends[i - 1] = static_cast<std::size_t>(*place);
    }
    if (ends[0] > ends[1]) return wrong("slice", "invalid slice index");
    if (whole.is_string()) return Item{Value::string(whole.text().substr(ends[0], ends[1] - ends[0])), false};
    const auto part = whole.items().subspan(ends[0], ends[1] - ends[0]);
    return Item{Value::array({part.begin(), part.end()}), false};
  }

  absl::StatusOr<Item> format(const std::vector<Item>& a) {
    const Builtin* sprintf = find_builtin("sprintf");
    if (sprintf == nullptr || !a[0].value.is_string()) return wrong("printf", "the format is no string");
    std::vector<Value> values;
    for (std::size_t i = 1; i < a.size(); ++i) values.push_back(a[i].value.is_defined() ? a[i].value : Value::null());
    const std::vector<Value> arguments = {a[0].value, Value::array(std::move(values))};
    auto made = sprintf->function(context_, arguments);
    if (!made.ok()) return made.status();
    return Item{*made, false};
  }

  static absl::StatusOr<Item> compare(const std::string& name, const std::vector<Item>& a) {
    if (a.size() < 2) return wrong(name, "missing argument for comparison");
    const auto comparable = [&](const Item& b) {
      return a[0].value.kind() == b.value.kind() && !b.value.is_collection() && (!b.value.is_number() || a[0].own == b.own);
    };
    if (name == "eq" || name == "ne") {
      bool equal = false;
      for (std::size_t i = 1; i < a.size(); ++i) {
        const bool nothing = a[0].value.is_null() || a[i].value.is_null() || !a[0].value.is_defined() || !a[i].value.is_defined();
        if (!nothing && !comparable(a[i])) return wrong(name, "incompatible types for comparison");
        equal = equal || a[0].value == a[i].value;
      }
      return Item{Value::boolean(equal == (name == "eq")), true};
    }
    if (!comparable(a[1]) || a[1].value.is_boolean()) return wrong(name, "incompatible types for comparison");
    const Value& x = a[0].value;
    const Value& y = a[1].value;
    const bool result = name == "lt" ? x < y : name == "le" ? x <= y : name == "gt" ? x > y : x >= y;
    return Item{Value::boolean(result), true};
  }

  QueryContext& context_;
  std::vector<std::pair<std::string, Item>> variables_;
};

}  // namespace

absl::StatusOr<std::string> render(QueryContext& context, const std::vector<Node>& nodes, const Value& data) {
  Renderer renderer(context, data);
  if (auto status = renderer.list(nodes, {data, false}); !status.ok()) return status;
  return std::move(renderer.out);
}

}  // namespace openshell::policy::rego::text_template
