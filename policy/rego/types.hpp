// Types of the language's static check: what a built-in takes and gives, and what the compiler infers of an expression.
#pragma once

#include "policy/rego/value.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace openshell::policy::rego {

/// Immutable and cheap to copy. Written with the makers below: `any_of({string(), set_of(string())})`.
class Type {
 public:
  enum class Form : std::uint8_t { any, null, boolean, number, string, array, tuple, set, object, one_of };

  [[nodiscard]] Form form() const noexcept { return form_; }
  /// tuple: one per position; array, set: the element; object: key and value of what is not listed; one_of: the choices.
  [[nodiscard]] const std::vector<Type>& parts() const noexcept { return parts_ ? *parts_ : kNone; }
  /// object: members known by name.
  [[nodiscard]] const std::vector<std::pair<std::string, Type>>& properties() const noexcept {
    return properties_ ? *properties_ : kNoProperties;
  }
  /// As error messages show it: `any<string, set[string]>`.
  [[nodiscard]] std::string text() const;

  explicit Type(Form form = Form::any, std::vector<Type> parts = {});
  Type(std::vector<std::pair<std::string, Type>> properties, std::vector<Type> rest);

 private:
  static const std::vector<Type> kNone;
  static const std::vector<std::pair<std::string, Type>> kNoProperties;
  Form form_;
  std::shared_ptr<const std::vector<Type>> parts_;
  std::shared_ptr<const std::vector<std::pair<std::string, Type>>> properties_;
};

namespace types {
Type any();
Type null();
Type boolean();
Type number();
Type string();
Type array_of(Type element);
Type tuple(std::vector<Type> positions);
Type set_of(Type element);
Type object_of(Type key, Type value);
Type record(std::vector<std::pair<std::string, Type>> properties);
Type any_of(std::vector<Type> choices);
Type of(const Value& value);
}  // namespace types

/// False where no value can be of both types.
bool may_overlap(const Type& a, const Type& b);

}  // namespace openshell::policy::rego
