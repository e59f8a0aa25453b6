#include "policy/rego/batch.hpp"

#include "policy/rego/workspace.hpp"
#include "policy/text.hpp"

namespace openshell::policy::rego {
namespace {

using openshell::policy::text::cat;

Value record(std::vector<std::pair<std::string_view, Value>> members) {
  std::vector<Member> made;
  for (auto& [key, value] : members) made.push_back({Value::string(key), std::move(value)});
  return Value::object(std::move(made));
}

std::string failure(const Value& id, std::string_view code, std::string_view message) {
  return to_json(record({{"id", id.is_defined() ? id : Value::null()},
                         {"error", record({{"code", Value::string(code)}, {"message", Value::string(message)}})}}));
}

std::string failure(const Value& id, const Error& error) {
  const std::string place =
      error.at.row == 0 ? error.file : cat(error.file, error.file.empty() ? "" : ":", error.at.row, ":", error.at.column);
  return failure(id, error.code, place.empty() ? error.message : cat(place, ": ", error.message));
}

/// What a member of a case has to be; empty: it is fine.
std::string wrong_member(const Member& member) {
  const auto name = member.key.text();
  const Value& value = member.value;
  if (name == "id" || name == "data" || name == "input") return name == "data" && !value.is_object() ? "data must be an object" : "";
  if (name == "query") return value.is_string() ? "" : "query must be a string";
  if (name == "v0" || name == "strict_builtin_errors") return value.is_boolean() ? "" : cat(name, " must be a boolean");
  if (name != "modules") return cat("unknown member ", name);
  for (const auto& text : value.items()) {
    if (!text.is_string()) return "modules must be an array of strings";
  }
  return value.is_array() ? "" : "modules must be an array of strings";
}

}  // namespace

Value answers_document(const std::vector<Answer>& answers) {
  std::vector<Value> rows;
  for (const auto& answer : answers) {
    std::vector<Value> expressions;
    for (const auto& value : answer.expressions) expressions.push_back(record({{"value", value}}));
    std::vector<Member> bindings;
    for (const auto& [name, value] : answer.bindings) bindings.push_back({Value::string(name), value});
    rows.push_back(record({{"expressions", Value::array(std::move(expressions))}, {"bindings", Value::object(std::move(bindings))}}));
  }
  return Value::array(std::move(rows));
}

std::string answer_case(std::string_view line, Limits limits) {
  const auto parsed = parse_json(line);
  if (!parsed.ok()) return failure({}, code::kInput, std::string(parsed.status().message().data(), parsed.status().message().size()));
  if (!parsed->is_object()) return failure({}, code::kInput, "the line is no JSON object");
  const auto member = [&](std::string_view name) {
    const Value* found = parsed->find(name);
    return found == nullptr ? Value() : *found;
  };
  const Value id = member("id");
  for (const auto& one : parsed->members()) {
    if (const auto why = wrong_member(one); !why.empty()) return failure(id, code::kInput, why);
  }
  if (!id.is_defined()) return failure(id, code::kInput, "id is missing");
  const Value query_text = member("query");
  if (!query_text.is_defined()) return failure(id, code::kInput, "query is missing");
  const Syntax syntax = member("v0").is_true() ? Syntax::v0 : Syntax::v1;

  Workspace workspace(syntax);
  std::size_t count = 0;
  for (const auto& text : member("modules").items()) {
    if (const auto error = workspace.add_module(cat("module", count++, ".rego"), text.text())) return failure(id, *error);
  }
  if (const auto errors = workspace.compile(); !errors.empty()) return failure(id, errors.front());
  if (const Value data = member("data"); data.is_defined()) {
    if (const auto status = workspace.add_data(data); !status.ok()) return failure(id, code::kInput, "data cannot be read");
  }
  QueryOptions options;
  options.limits = limits;
  options.strict_errors = member("strict_builtin_errors").is_true();
  const auto answers = workspace.query(query_text.text(), member("input"), options);
  if (const auto* errors = std::get_if<Errors>(&answers)) return failure(id, errors->front());
  return to_json(record({{"id", id}, {"result", answers_document(std::get<std::vector<Answer>>(answers))}}));
}

}  // namespace openshell::policy::rego
