// What is known of types while code is made: enough to refuse arguments that can never be right and values that can never be equal.
#include "policy/rego/codegen.hpp"
#include "policy/text.hpp"

#include <algorithm>

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;
using Form = Type::Form;

}  // namespace

void Codegen::type_error(Position at, std::string message) {
  type_errors.push_back({std::string(code::kType), std::move(message), file_, at});
}

Type Codegen::type_of(const Term& term) const {
  switch (term.form) {
    case TermForm::scalar:
      return types::of(term.scalar);
    case TermForm::interpolation:
      return types::string();
    case TermForm::variable: {
      const auto* variable = find(term.name);
      return variable == nullptr ? types::any() : variable->type;
    }
    case TermForm::array: {
      std::vector<Type> positions;
      for (const auto& part : term.parts) positions.push_back(type_of(part));
      return types::tuple(std::move(positions));
    }
    case TermForm::set: {
      std::vector<Type> elements;
      for (const auto& part : term.parts) elements.push_back(type_of(part));
      return elements.empty() ? types::set_of(types::any()) : types::set_of(types::any_of(std::move(elements)));
    }
    case TermForm::object: {
      std::vector<std::pair<std::string, Type>> properties;
      for (std::size_t i = 0; i + 1 < term.parts.size(); i += 2) {
        if (!term.parts[i].is_string()) return types::object_of(types::any(), types::any());
        properties.emplace_back(std::string(term.parts[i].scalar.text()), type_of(term.parts[i + 1]));
      }
      return types::record(std::move(properties));
    }
    case TermForm::call: {
      const Callee callee = find_callee(root_, term.parts[0]);
      return callee.builtin != nullptr && !callee.builtin->relation ? callee.builtin->result : types::any();
    }
    case TermForm::reference: {
      Type type = type_of(term.parts[0]);
      for (std::size_t i = 1; i < term.parts.size(); ++i) {
        auto next = selected(type, term.parts[i]);
        if (!next) return types::any();
        type = *std::move(next);
      }
      return type;
    }
    default: {
      const auto found = comprehended_.find(&term);
      return found == comprehended_.end() ? types::any() : found->second;
    }
  }
}

/// What `key` finds in a value of the type; nothing where it can find nothing.
std::optional<Type> Codegen::selected(const Type& from, const Term& key) {
  const bool fixed = key.form == TermForm::scalar;
  switch (from.form()) {
    case Form::any:
    case Form::one_of:
      return types::any();
    case Form::tuple: {
      if (!fixed) return types::any();
      const auto index = key.scalar.as_integer();
      if (!key.scalar.is_small_integer() || *index < 0 || static_cast<std::size_t>(*index) >= from.parts().size()) return std::nullopt;
      return from.parts()[static_cast<std::size_t>(*index)];
    }
    case Form::array:
      if (fixed && !key.scalar.is_number()) return std::nullopt;
      return from.parts().empty() ? types::any() : from.parts()[0];
    case Form::set:
      if (fixed && !from.parts().empty() && !may_overlap(types::of(key.scalar), from.parts()[0])) return std::nullopt;
      return from.parts().empty() ? types::any() : from.parts()[0];
    case Form::object: {
      if (!fixed) return types::any();
      if (key.scalar.is_string()) {
        for (const auto& [name, type] : from.properties()) {
          if (name == key.scalar.text()) return type;
        }
      }
      if (from.parts().size() != 2 || !may_overlap(types::of(key.scalar), from.parts()[0])) return std::nullopt;
      return from.parts()[1];
    }
    default:
      return std::nullopt;  // a scalar has no members
  }
}

void Codegen::check_reference(const Term& reference) {
  Type type = type_of(reference.parts[0]);
  for (std::size_t i = 1; i < reference.parts.size(); ++i) {
    auto next = selected(type, reference.parts[i]);
    if (!next) return type_error(reference.at, "undefined ref");
    type = *std::move(next);
  }
}

/// Variables of a pattern are of the types of what it takes apart.
void Codegen::give_type(const Term& pattern, const Type& type) {
  if (pattern.is_variable()) {
    if (auto* variable = find(pattern.name); variable != nullptr && !variable->bound) variable->type = type;
    return;
  }
  if (pattern.form != TermForm::array) return;
  for (std::size_t i = 0; i < pattern.parts.size(); ++i) {
    if (type.form() == Form::tuple && type.parts().size() == pattern.parts.size()) give_type(pattern.parts[i], type.parts()[i]);
    if (type.form() == Form::array && !type.parts().empty()) give_type(pattern.parts[i], type.parts()[0]);
  }
}

void Codegen::check_arguments(const Term& call, const Builtin& builtin) {
  for (std::size_t i = 1; i < call.parts.size() && i <= builtin.arguments.size(); ++i) {
    if (may_overlap(type_of(call.parts[i]), builtin.arguments[i - 1])) continue;
    return type_error(call.at, cat(builtin.name, ": invalid argument(s): operand ", i, " must be ", builtin.arguments[i - 1].text(),
                                   " but got ", type_of(call.parts[i]).text()));
  }
}

void Codegen::check_match(const Term& left, const Term& right, Position at) {
  if (ground(left) && ground(right) && !may_overlap(type_of(left), type_of(right))) {
    type_error(at, cat("match error: ", type_of(left).text(), " and ", type_of(right).text()));
  }
}

}  // namespace openshell::policy::rego
