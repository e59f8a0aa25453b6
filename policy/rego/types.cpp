#include "policy/rego/types.hpp"
#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {

using openshell::policy::text::cat;

const std::vector<Type> Type::kNone;
const std::vector<std::pair<std::string, Type>> Type::kNoProperties;

Type::Type(Form form, std::vector<Type> parts)
    : form_(form), parts_(parts.empty() ? nullptr : std::make_shared<const std::vector<Type>>(std::move(parts))) {}

Type::Type(std::vector<std::pair<std::string, Type>> properties, std::vector<Type> rest)
    : form_(Form::object),
      parts_(rest.empty() ? nullptr : std::make_shared<const std::vector<Type>>(std::move(rest))),
      properties_(properties.empty() ? nullptr : std::make_shared<const std::vector<std::pair<std::string, Type>>>(std::move(properties))) {
}

std::string Type::text() const {
  const auto list = [&](std::string_view open, std::string_view close) {
    std::string out(open);
    for (const auto& part : parts()) out += cat(out.size() == open.size() ? "" : ", ", part.text());
    return out + std::string(close);
  };
  switch (form_) {
    case Form::any:
      return "any";
    case Form::null:
      return "null";
    case Form::boolean:
      return "boolean";
    case Form::number:
      return "number";
    case Form::string:
      return "string";
    case Form::array:
      return parts().empty() ? "array" : cat("array[", parts()[0].text(), "]");
    case Form::tuple:
      return list("array<", ">");
    case Form::set:
      return parts().empty() ? "set" : cat("set[", parts()[0].text(), "]");
    case Form::one_of:
      return list("any<", ">");
    case Form::object: {
      std::string fixed;
      for (const auto& [key, type] : properties()) fixed += cat(fixed.empty() ? "" : ", ", key, ": ", type.text());
      std::string out = "object";
      if (!fixed.empty()) out += cat("<", fixed, ">");
      if (parts().size() == 2) out += cat("[", parts()[0].text(), ": ", parts()[1].text(), "]");
      return out;
    }
  }
  return "any";
}

namespace types {
Type any() { return Type(Type::Form::any); }
Type null() { return Type(Type::Form::null); }
Type boolean() { return Type(Type::Form::boolean); }
Type number() { return Type(Type::Form::number); }
Type string() { return Type(Type::Form::string); }
Type array_of(Type element) { return Type(Type::Form::array, {std::move(element)}); }
Type tuple(std::vector<Type> positions) { return Type(Type::Form::tuple, std::move(positions)); }
Type set_of(Type element) { return Type(Type::Form::set, {std::move(element)}); }
Type object_of(Type key, Type value) { return Type({}, {std::move(key), std::move(value)}); }
Type record(std::vector<std::pair<std::string, Type>> properties) { return Type(std::move(properties), {}); }

Type any_of(std::vector<Type> choices) {
  std::vector<Type> flat;
  for (auto& choice : choices) {
    if (choice.form() == Type::Form::any) return any();
    if (choice.form() == Type::Form::one_of) {
      flat.insert(flat.end(), choice.parts().begin(), choice.parts().end());
    } else {
      flat.push_back(std::move(choice));
    }
  }
  if (flat.size() == 1) return flat[0];
  return Type(Type::Form::one_of, std::move(flat));
}

Type of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return any();
    case Kind::null:
      return null();
    case Kind::boolean:
      return boolean();
    case Kind::number:
      return number();
    case Kind::string:
      return string();
    case Kind::array: {
      std::vector<Type> positions;
      for (const auto& item : value.items()) positions.push_back(of(item));
      return tuple(std::move(positions));
    }
    case Kind::set:
      return set_of(any());
    case Kind::object: {
      std::vector<std::pair<std::string, Type>> properties;
      for (const auto& member : value.members()) {
        if (!member.key.is_string()) return object_of(any(), any());
        properties.emplace_back(std::string(member.key.text()), of(member.value));
      }
      return record(std::move(properties));
    }
  }
  return any();
}
}  // namespace types

bool may_overlap(const Type& a, const Type& b) {
  using Form = Type::Form;
  if (a.form() == Form::any || b.form() == Form::any) return true;
  if (a.form() == Form::one_of)
    return std::any_of(a.parts().begin(), a.parts().end(), [&](const Type& part) { return may_overlap(part, b); });
  if (b.form() == Form::one_of) return may_overlap(b, a);
  const bool a_list = a.form() == Form::array || a.form() == Form::tuple;
  const bool b_list = b.form() == Form::array || b.form() == Form::tuple;
  if (a_list && b_list) {
    if (a.form() == Form::tuple && b.form() == Form::tuple) {
      if (a.parts().size() != b.parts().size()) return false;
      for (std::size_t i = 0; i < a.parts().size(); ++i) {
        if (!may_overlap(a.parts()[i], b.parts()[i])) return false;
      }
      return true;
    }
    const Type& fixed = a.form() == Form::tuple ? a : b;
    const Type& open = a.form() == Form::tuple ? b : a;
    if (open.parts().empty() || fixed.form() != Form::tuple) return true;  // an empty array is of both
    return std::all_of(fixed.parts().begin(), fixed.parts().end(), [&](const Type& part) { return may_overlap(part, open.parts()[0]); });
  }
  if (a.form() == Form::set && b.form() == Form::set && !a.parts().empty() && !b.parts().empty())
    return may_overlap(a.parts()[0], b.parts()[0]);
  return a.form() == b.form();
}

}  // namespace openshell::policy::rego
