#include "policy/rego/json_schema.hpp"

#include "policy/rego/number.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/pattern.hpp"

#include <algorithm>
#include <cmath>

namespace openshell::policy::rego {
namespace {

constexpr std::size_t kMostNesting = 256;

std::string_view type_of(const Value& value) {
  if (value.is_number()) return big_integer(value) ? "integer" : "number";
  return kind_name(value.kind());
}

bool is_of(const Value& value, std::string_view type) { return type_of(value) == type || (type == "number" && value.is_number()); }

std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += character_size(text, i)) ++count;
  return count;
}

class Validator {
 public:
  Validator(QueryContext& context, const Value& root) : context_(context), root_(root) {}

  std::vector<SchemaFault> faults;
  absl::Status status;

  void validate(const Value& schema, const Value& value, const std::string& field, std::size_t depth = 0) {
    if (auto spent = context_.charge(1); !spent.ok()) status = spent;
    if (depth > kMostNesting) status = absl::ResourceExhaustedError("limit exceeded: elements");
    if (!status.ok()) return;
    if (schema.is_false()) return add(field, "false", "False always fails validation");
    if (!schema.is_object()) return;
    if (const Value* reference = schema.find("$ref"); reference != nullptr && reference->is_string()) {
      if (const Value* target = resolve(reference->text())) validate(*target, value, field, depth + 1);
      return;
    }
    if (!type_holds(schema, value, field)) return;
    combinations(schema, value, field, depth);
    common(schema, value, field);
    if (value.is_array()) array(schema, value, field, depth);
    if (value.is_object()) object(schema, value, field, depth);
    if (value.is_string()) string(schema, value, field);
    if (value.is_number()) number(schema, value, field);
  }

 private:
  void add(const std::string& field, std::string_view type, std::string description) {
    faults.push_back({field, std::string(type), std::move(description)});
    if (auto room = context_.room_for(faults.size()); !room.ok()) status = room;
  }
  static std::string below(const std::string& field, std::string_view step) {
    return field == "(Root)" ? std::string(step) : text::cat(field, ".", step);
  }

  const Value* resolve(std::string_view reference) {
    if (!reference.starts_with('#')) return nullptr;
    const Value* at = &root_;
    reference.remove_prefix(1);
    if (reference.empty()) return at;
    for (const auto step : split_at(reference.substr(1), '/')) {
      if (at->is_array()) {
        at = step.empty() || step.size() > 8 || step.find_first_not_of("0123456789") != std::string_view::npos
                 ? nullptr
                 : at->find(Value::integer(std::stoll(std::string(step))));
      } else {
        at = at->find(step);
      }
      if (at == nullptr) return nullptr;
    }
    return at;
  }

  /// What another schema refuses of the value.
  std::vector<SchemaFault> faults_of(const Value& schema, const Value& value, const std::string& field, std::size_t depth) {
    auto outer = std::exchange(faults, {});
    validate(schema, value, field, depth + 1);
    return std::exchange(faults, std::move(outer));
  }
  void append(std::vector<SchemaFault> more) {
    faults.insert(faults.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  bool type_holds(const Value& schema, const Value& value, const std::string& field) {
    const Value* type = schema.find("type");
    if (type == nullptr) return true;
    std::string expected;
    if (type->is_string()) {
      if (is_of(value, type->text())) return true;
      expected = type->text();
    } else {
      for (const auto& one : type->items()) {
        if (is_of(value, one.text())) return true;
        expected += text::cat(expected.empty() ? "[" : ",", one.text());
      }
      if (type->size() == 0) return true;
      expected += ']';
      if (type->size() == 1) expected = type->items()[0].text();
    }
    add(field, "invalid_type", text::cat("Invalid type. Expected: ", expected, ", given: ", type_of(value)));
    return false;
  }

  void combinations(const Value& schema, const Value& value, const std::string& field, std::size_t depth) {
    if (const Value* any = schema.find("anyOf")) choices(*any, value, field, depth, false);
    if (const Value* one = schema.find("oneOf")) choices(*one, value, field, depth, true);
    if (const Value* all = schema.find("allOf")) {
      bool holds = true;
      for (const auto& part : all->items()) {
        auto found = faults_of(part, value, field, depth);
        holds = holds && found.empty();
        append(std::move(found));
      }
      if (!holds) add(field, "number_all_of", "Must validate all the schemas (allOf)");
    }
    if (const Value* no = schema.find("not"); no != nullptr && faults_of(*no, value, field, depth).empty()) {
      add(field, "number_not", "Must not validate the schema (not)");
    }
    if (const Value* dependencies = schema.find("dependencies"); dependencies != nullptr && value.is_object()) {
      depending(*dependencies, value, field, depth);
    }
    if (const Value* condition = schema.find("if")) {
      const bool holds = faults_of(*condition, value, field, depth).empty();
      const Value* then = schema.find(holds ? "then" : "else");
      if (then == nullptr) return;
      auto found = faults_of(*then, value, field, depth);
      if (found.empty()) return;
      add(field, holds ? "condition_then" : "condition_else",
          holds ? "Must validate \"then\" as \"if\" was valid" : "Must validate \"else\" as \"if\" was not valid");
      append(std::move(found));
    }
  }

  void choices(const Value& schemas, const Value& value, const std::string& field, std::size_t depth, bool exactly_one) {
    std::size_t good = 0;
    bool have_best = false;
    std::vector<SchemaFault> best;
    for (const auto& part : schemas.items()) {
      auto found = faults_of(part, value, field, depth);
      if (found.empty()) {
        ++good;
        if (!exactly_one) return;
      } else if (good == 0 && (!have_best || found.size() < best.size())) {
        best = std::move(found);
        have_best = true;
      }
    }
    if (exactly_one && good == 1) return;
    add(field, exactly_one ? "number_one_of" : "number_any_of",
        exactly_one ? "Must validate one and only one schema (oneOf)" : "Must validate at least one schema (anyOf)");
    if (good == 0) append(std::move(best));
  }

  void depending(const Value& dependencies, const Value& value, const std::string& field, std::size_t depth) {
    for (const auto& member : dependencies.members()) {
      if (value.find(member.key) == nullptr) continue;
      if (!member.value.is_array()) {
        validate(member.value, value, field, depth + 1);
        continue;
      }
      for (const auto& name : member.value.items()) {
        if (value.find(name) == nullptr)
          add(field, "missing_dependency", text::cat("Has a dependency on ", name.is_string() ? name.text() : ""));
      }
    }
  }

  void common(const Value& schema, const Value& value, const std::string& field) {
    if (const Value* constant = schema.find("const"); constant != nullptr && !(*constant == value)) {
      add(field, "const", text::cat(field, " does not match: ", to_json(*constant)));
    }
    const Value* allowed = schema.find("enum");
    if (allowed == nullptr) return;
    std::string list;
    for (const auto& one : allowed->items()) {
      if (one == value) return;
      list += text::cat(list.empty() ? "" : ", ", to_json(one));
    }
    add(field, "enum", text::cat(field, " must be one of the following: ", list));
  }

  /// Adds a fault where the size is beyond a bound of the schema.
  void bound(const Value& schema, std::string_view name, std::size_t size, bool least, const std::string& field, std::string_view type,
             std::string_view before, std::string_view after) {
    const Value* limit = schema.find(name);
    if (limit == nullptr || !limit->is_number()) return;
    const auto number = static_cast<long double>(size);
    if (least ? number >= approximate(*limit) : number <= approximate(*limit)) return;
    add(field, type, text::cat(before, number_text(*limit), after));
  }

  void array(const Value& schema, const Value& value, const std::string& field, std::size_t depth) {
    const auto items = value.items();
    if (const Value* each = schema.find("items")) {
      const std::size_t listed = each->is_array() ? each->size() : items.size();
      for (std::size_t i = 0; i < std::min(listed, items.size()); ++i) {
        validate(each->is_array() ? each->items()[i] : *each, items[i], below(field, std::to_string(i)), depth + 1);
      }
      const Value* more = each->is_array() ? schema.find("additionalItems") : nullptr;
      if (more != nullptr && items.size() > listed) {
        if (more->is_false()) add(field, "array_no_additional_items", "No additional items allowed on array");
        for (std::size_t i = listed; more->is_object() && i < items.size(); ++i)
          validate(*more, items[i], below(field, std::to_string(i)), depth + 1);
      }
    }
    bound(schema, "minItems", items.size(), true, field, "array_min_items", "Array must have at least ", " items");
    bound(schema, "maxItems", items.size(), false, field, "array_max_items", "Array must have at most ", " items");
    if (const Value* unique = schema.find("uniqueItems"); unique != nullptr && unique->is_true()) distinct(items, field);
    const Value* contained = schema.find("contains");
    if (contained == nullptr) return;
    bool have_best = false;
    std::vector<SchemaFault> best;
    for (std::size_t i = 0; i < items.size(); ++i) {
      auto found = faults_of(*contained, items[i], below(field, std::to_string(i)), depth);
      if (found.empty()) return;
      if (!have_best || found.size() < best.size()) best = std::move(found);
      have_best = true;
    }
    add(field, "contains", "At least one of the items must match");
    append(std::move(best));
  }

  void distinct(std::span<const Value> items, const std::string& field) {
    absl::flat_hash_map<Value, std::size_t> seen;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto [first, is_new] = seen.emplace(items[i], i);
      if (!is_new) add(field, "unique", text::cat("array items[", first->second, ",", i, "] must be unique"));
    }
  }

  void object(const Value& schema, const Value& value, const std::string& field, std::size_t depth) {
    if (const Value* required = schema.find("required")) {
      for (const auto& name : required->items()) {
        if (value.find(name) == nullptr) add(field, "required", text::cat(name.text(), " is required"));
      }
    }
    bound(schema, "minProperties", value.size(), true, field, "array_min_properties", "Must have at least ", " properties");
    bound(schema, "maxProperties", value.size(), false, field, "array_max_properties", "Must have at most ", " properties");
    const Value* known = schema.find("properties");
    const Value* patterns = schema.find("patternProperties");
    const Value* more = schema.find("additionalProperties");
    const Value* names = schema.find("propertyNames");
    for (const auto& member : value.members()) {
      const auto name = member.key.text();
      const bool listed = known != nullptr && known->find(member.key) != nullptr;
      const bool matched = patterns != nullptr && by_pattern(*patterns, member, field, depth);
      if (more != nullptr && !listed && !matched) {
        if (more->is_false()) add(field, "additional_property_not_allowed", text::cat("Additional property ", name, " is not allowed"));
        if (more->is_object()) validate(*more, member.value, below(field, name), depth + 1);
      }
      if (names != nullptr) {
        auto found = faults_of(*names, member.key, below(field, name), depth);
        if (!found.empty()) {
          add(field, "invalid_property_name", text::cat("Property name of ", quoted(name), " does not match"));
          append(std::move(found));
        }
      }
    }
    if (known == nullptr) return;
    for (const auto& property : known->members()) {
      const Value* item = value.find(property.key);
      if (item != nullptr) validate(property.value, *item, below(field, property.key.text()), depth + 1);
    }
  }

  bool by_pattern(const Value& patterns, const Member& member, const std::string& field, std::size_t depth) {
    bool matched = false;
    for (const auto& one : patterns.members()) {
      if (!matches(one.key.text(), member.key.text())) continue;
      matched = true;
      validate(one.value, member.value, below(field, member.key.text()), depth + 1);
    }
    return matched;
  }

  bool matches(std::string_view pattern, std::string_view text) {
    const auto compiled = compile_pattern(context_, pattern);
    if (absl::IsResourceExhausted(compiled.status())) status = compiled.status();
    return compiled.ok() && re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), **compiled);
  }

  void string(const Value& schema, const Value& value, const std::string& field) {
    const auto size = characters(value.text());
    bound(schema, "minLength", size, true, field, "string_gte", "String length must be greater than or equal to ", "");
    bound(schema, "maxLength", size, false, field, "string_lte", "String length must be less than or equal to ", "");
    if (const Value* pattern = schema.find("pattern"); pattern != nullptr && !matches(pattern->text(), value.text())) {
      add(field, "pattern", text::cat("Does not match pattern '", pattern->text(), "'"));
    }
    if (const Value* format = schema.find("format"); format != nullptr && !has_format(format->text(), value.text())) {
      add(field, "format", text::cat("Does not match format '", format->text(), "'"));
    }
  }

  void number(const Value& schema, const Value& value, const std::string& field) {
    if (const Value* factor = schema.find("multipleOf")) {
      const auto quotient = divide(value, *factor);
      if (!quotient.ok() || !big_integer(*quotient)) add(field, "multiple_of", text::cat("Must be a multiple of ", number_text(*factor)));
    }
    const Value* exclusive_most = schema.find("exclusiveMaximum");
    const Value* exclusive_least = schema.find("exclusiveMinimum");
    const Value* most = schema.find("maximum");
    const Value* least = schema.find("minimum");
    // In draft 4 the exclusive ones say of the other bound whether it is meant itself.
    if (exclusive_most != nullptr && exclusive_most->is_true()) std::swap(exclusive_most, most);
    if (exclusive_least != nullptr && exclusive_least->is_true()) std::swap(exclusive_least, least);
    const auto check = [&](const Value* limit, bool holds, std::string_view type, std::string_view text) {
      if (limit != nullptr && limit->is_number() && !holds) add(field, type, text::cat(text, number_text(*limit)));
    };
    check(most, most != nullptr && value <= *most, "number_lte", "Must be less than or equal to ");
    check(exclusive_most, exclusive_most != nullptr && value < *exclusive_most, "number_lt", "Must be less than ");
    check(least, least != nullptr && value >= *least, "number_gte", "Must be greater than or equal to ");
    check(exclusive_least, exclusive_least != nullptr && value > *exclusive_least, "number_gt", "Must be greater than ");
  }

  QueryContext& context_;
  const Value& root_;
};

}  // namespace

absl::StatusOr<std::vector<SchemaFault>> validate(QueryContext& context, const Value& schema, const Value& document) {
  Validator validator(context, schema);
  validator.validate(schema, document, "(Root)");
  if (!validator.status.ok()) return validator.status;
  return std::move(validator.faults);
}

}  // namespace openshell::policy::rego
