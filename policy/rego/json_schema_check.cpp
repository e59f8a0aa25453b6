#include "policy/rego/json_schema.hpp"

#include "policy/rego/number.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/pattern.hpp"

#include <algorithm>

namespace openshell::policy::rego {
namespace {

constexpr std::size_t kMostNesting = 128;
constexpr std::string_view kTypes[] = {"array", "boolean", "integer", "number", "null", "object", "string"};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

absl::Status check_type_name(const Value& name) {
  if (!name.is_string()) return failure("Invalid type. Expected: type, given: string/Array Of Strings");
  if (std::find(std::begin(kTypes), std::end(kTypes), name.text()) != std::end(kTypes)) return absl::OkStatus();
  return failure("has a primitive type that is NOT VALID -- given: /", name.text(),
                 "/ Expected valid values are:[array boolean integer number null object string]");
}

class SchemaCheck {
 public:
  SchemaCheck(QueryContext& context, const Value& root) : context_(context), root_(root) {}

  absl::Status schema(const Value& value, std::size_t depth) {
    if (auto status = context_.charge(1); !status.ok()) return status;
    if (depth > kMostNesting) return absl::ResourceExhaustedError("limit exceeded: elements");
    if (value.is_boolean()) return absl::OkStatus();
    if (!value.is_object())
      return failure("Invalid type. Expected: valid schema, given: ", value.is_number() ? "number" : kind_name(value.kind()));
    for (const auto& member : value.members()) {
      if (!member.key.is_string()) continue;
      if (auto status = keyword(member.key.text(), member.value, depth); !status.ok()) return status;
    }
    return bounds(value);
  }

 private:
  absl::Status keyword(std::string_view name, const Value& value, std::size_t depth) {
    if (name == "$ref") return reference(value);
    if (name == "type") return type(value);
    if (is_one_of(name, {"properties", "patternProperties", "definitions", "$defs"})) return schemas_by_name(name, value, depth);
    if (is_one_of(name, {"additionalProperties", "additionalItems", "contains", "not", "if", "then", "else", "propertyNames"}))
      return schema(value, depth + 1);
    if (name == "items") {
      if (value.is_array()) return schemas(value, depth);
      if (!value.is_object() && !value.is_boolean()) return failure("Invalid type. Expected: Valid Schema/Array Of Schemas, given: items");
      return schema(value, depth + 1);
    }
    if (is_one_of(name, {"allOf", "anyOf", "oneOf"})) {
      if (!value.is_array()) return failure("Invalid type. Expected: array, given: ", name);
      return schemas(value, depth);
    }
    if (is_one_of(name, {"minimum", "maximum", "multipleOf"})) {
      if (!value.is_number()) return failure(name, " must be of a Number");
      if (name == "multipleOf" && approximate(value) <= 0) return failure("multipleOf must be strictly greater than 0");
      return absl::OkStatus();
    }
    if (is_one_of(name, {"exclusiveMinimum", "exclusiveMaximum"})) {
      return value.is_boolean() || value.is_number() ? absl::OkStatus() : failure(name, " must be of a boolean/number");
    }
    if (is_one_of(name, {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})) {
      const auto integer = value.is_number() ? value.as_integer() : std::nullopt;
      if (!integer) return failure(name, " must be of an integer");
      return *integer >= 0 ? absl::OkStatus() : failure(name, " must be greater than or equal to 0");
    }
    if (name == "required") {
      if (!value.is_array()) return failure("required must be of an array");
      for (const auto& item : value.items()) {
        if (!item.is_string()) return failure("Invalid type. Expected: string, given: required");
      }
      return absl::OkStatus();
    }
    if (name == "pattern") {
      if (!value.is_string() || !compile_pattern(context_, value.text()).ok()) return failure("pattern must be a valid regex");
      return absl::OkStatus();
    }
    if (name == "uniqueItems" && !value.is_boolean()) return failure("uniqueItems must be of a boolean");
    if (name == "enum" && !value.is_array()) return failure("enum must be of an array");
    if (name == "format" && !value.is_string()) return failure("Invalid type. Expected: string, given: format");
    if (name == "dependencies") return dependencies(value, depth);
    return absl::OkStatus();
  }

  absl::Status type(const Value& value) {
    if (value.is_string()) return check_type_name(value);
    if (!value.is_array()) return failure("Invalid type. Expected: type, given: string/Array Of Strings");
    for (const auto& item : value.items()) {
      if (auto status = check_type_name(item); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status schemas(const Value& value, std::size_t depth) {
    for (const auto& item : value.items()) {
      if (auto status = schema(item, depth + 1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status schemas_by_name(std::string_view name, const Value& value, std::size_t depth) {
    if (!value.is_object())
      return name == "properties" ? failure("Properties must be of type object")
                                  : failure("Invalid type. Expected: valid schema, given: ", name);
    for (const auto& member : value.members()) {
      if (name == "patternProperties" && !compile_pattern(context_, member.key.text()).ok()) {
        return failure("Invalid regex pattern '", member.key.text(), "'");
      }
      if (auto status = schema(member.value, depth + 1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status dependencies(const Value& value, std::size_t depth) {
    if (!value.is_object()) return failure("Invalid type. Expected: dependencies, given: schema or array of string");
    for (const auto& member : value.members()) {
      if (member.value.is_array()) continue;
      if (auto status = schema(member.value, depth + 1); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status reference(const Value& value) {
    if (!value.is_string()) return failure("Invalid type. Expected: string, given: $ref");
    auto text = value.text();
    if (!text.starts_with('#')) return failure("remote reference loading disabled");
    text.remove_prefix(1);
    if (text.empty()) return absl::OkStatus();
    if (!text.starts_with('/')) return absl::OkStatus();
    const Value* at = &root_;
    for (const auto step : split_at(text.substr(1), '/')) {
      const Value* next = at->is_object() ? at->find(step) : nullptr;
      if (at->is_array() && !step.empty() && step.size() < 9 && step.find_first_not_of("0123456789") == std::string_view::npos) {
        next = at->find(Value::integer(std::stoll(std::string(step))));
      }
      if (next == nullptr) return failure("Object has no key '", step, "'");
      at = next;
    }
    return absl::OkStatus();
  }

  static absl::Status bounds(const Value& schema) {
    static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
        {"minLength", "maxLength"}, {"minItems", "maxItems"}, {"minProperties", "maxProperties"}, {"minimum", "maximum"}};
    for (const auto& [low, high] : kPairs) {
      const Value* least = schema.find(low);
      const Value* most = schema.find(high);
      if (least != nullptr && most != nullptr && *most < *least) return failure(low, " cannot be greater than ", high);
    }
    return absl::OkStatus();
  }

  QueryContext& context_;
  const Value& root_;
};

}  // namespace

absl::Status check_schema(QueryContext& context, const Value& schema) { return SchemaCheck(context, schema).schema(schema, 0); }

}  // namespace openshell::policy::rego
