#include "policy/rego/batch.hpp"
#include "policy/text.hpp"
#include "programs/rego/commands.hpp"
#include "programs/rego/files.hpp"

#include <iostream>
#include <iterator>

namespace openshell::rego_program {
namespace {

using namespace openshell::policy::rego;
using openshell::policy::text::cat;

void append_indented(std::string& out, const Value& value, std::size_t level) {
  const std::string inner(2 * (level + 1), ' ');
  const std::string outer(2 * level, ' ');
  const std::size_t size = value.size();
  if (size == 0 || (!value.is_collection())) {
    append_json(out, value);
    return;
  }
  const bool object = value.is_object();
  out += object ? "{\n" : "[\n";
  std::size_t count = 0;
  const auto item = [&](const Value* key, const Value& part) {
    out += inner;
    if (key != nullptr) {
      append_json_string(out, key->is_string() ? std::string(key->text()) : to_json(*key));
      out += ": ";
    }
    append_indented(out, part, level + 1);
    out += ++count == size ? "\n" : ",\n";
  };
  for (const auto& part : value.items()) item(nullptr, part);
  for (const auto& member : value.members()) item(&member.key, member.value);
  out += outer;
  out += object ? '}' : ']';
}

std::string indented(const Value& value) {
  std::string out;
  append_indented(out, value, 0);
  return out;
}

/// The shape people know: members in their usual order, not sorted.
std::string answers_text(const std::vector<Answer>& answers, const Body& written, const std::vector<std::size_t>& order,
                         std::string_view source) {
  std::vector<const Expr*> body;
  for (const auto& expr : written) {
    if (expr.form != ExprForm::some) body.push_back(&expr);
  }
  if (answers.empty()) return "{}";
  std::string out = "{\n  \"result\": [\n";
  for (const auto& answer : answers) {
    out += "    {\n      \"expressions\": [\n";
    for (std::size_t i = 0; i < answer.expressions.size(); ++i) {
      const auto& expr = *body[order[i]];
      std::string value;
      append_indented(value, answer.expressions[i], 5);
      std::string text;
      append_json_string(text, source.substr(expr.begin, expr.end - expr.begin));
      out += cat("        {\n          \"value\": ", value, ",\n          \"text\": ", text,
                 ",\n          \"location\": {\n            \"row\": ", expr.at.row, ",\n            \"col\": ", expr.at.column,
                 "\n          }\n        }", i + 1 == answer.expressions.size() ? "\n" : ",\n");
    }
    out += "      ]";
    if (!answer.bindings.empty()) {
      std::vector<Member> bindings;
      for (const auto& [name, value] : answer.bindings) bindings.push_back({Value::string(name), value});
      out += ",\n      \"bindings\": ";
      append_indented(out, Value::object(std::move(bindings)), 3);
    }
    out += &answer == &answers.back() ? "\n    }\n" : "\n    },\n";
  }
  return out + "  ]\n}";
}

std::string raw(const Value& value) { return value.is_string() ? std::string(value.text()) : to_json(value); }

void show(const std::vector<Answer>& answers, const Body& body, const std::vector<std::size_t>& order, std::string_view source,
          const std::string& format) {
  if (format == "json") {
    std::cout << answers_text(answers, body, order, source) << '\n';
  } else if (format == "values") {
    std::vector<Value> rows;
    for (const auto& answer : answers)
      rows.push_back(answer.expressions.size() == 1 ? answer.expressions[0] : Value::array(answer.expressions));
    std::cout << indented(Value::array(std::move(rows))) << '\n';
  } else if (format == "bindings") {
    std::vector<Value> rows;
    for (const auto& answer : answers) {
      std::vector<Member> bindings;
      for (const auto& [name, value] : answer.bindings) bindings.push_back({Value::string(name), value});
      rows.push_back(Value::object(std::move(bindings)));
    }
    std::cout << indented(Value::array(std::move(rows))) << '\n';
  } else if (format == "raw") {
    for (const auto& answer : answers) {
      std::string line;
      for (const auto& value : answer.expressions) line += cat(line.empty() ? "" : " ", raw(value));
      std::cout << line << '\n';
    }
  } else if (answers.empty()) {
    std::cout << "undefined\n";
  } else {
    for (const auto& answer : answers) {
      for (const auto& value : answer.expressions) std::cout << indented(value) << '\n';
      for (const auto& [name, value] : answer.bindings) std::cout << name << " = " << to_json(value) << '\n';
    }
  }
}

int show_errors(const Errors& errors, const std::string& format) {
  if (format != "json") {
    for (const auto& error : errors) std::cerr << describe(error) << '\n';
    return 2;
  }
  std::string out = "{\n  \"errors\": [\n";
  for (const auto& error : errors) {
    std::string message;
    append_json_string(message, error.message);
    std::string file;
    append_json_string(file, error.file);
    out += cat("    {\n      \"message\": ", message, ",\n      \"code\": \"", error.code, "\"");
    if (error.at.row != 0) {
      out += cat(",\n      \"location\": {\n        \"file\": ", file, ",\n        \"row\": ", error.at.row,
                 ",\n        \"col\": ", error.at.column, "\n      }");
    }
    out += &error == &errors.back() ? "\n    }\n" : "\n    },\n";
  }
  std::cout << out << "  ]\n}\n";
  return 2;
}

}  // namespace

int evaluate(const Arguments& arguments) {
  const auto usage = [](const std::string& problem) {
    std::cerr << "rego eval: " << problem << '\n' << kUsage;
    return 2;
  };
  if (arguments.operands.size() != 1) return usage("exactly one query is wanted");
  const std::string& format = arguments.format;
  for (const std::string known : {"json", "pretty", "values", "bindings", "raw", "discard", ""}) {
    if (known.empty()) return usage("unknown format " + format);
    if (known == format) break;
  }
  const Syntax syntax = arguments.older_syntax ? Syntax::v0 : Syntax::v1;
  Workspace workspace(syntax);
  if (const auto errors = load(arguments.data, workspace); !errors.empty()) return show_errors(errors, format);
  Value input;
  if (arguments.input_from_stdin || !arguments.input.empty()) {
    absl::StatusOr<Value> read =
        arguments.input_from_stdin ? parse_json(std::string(std::istreambuf_iterator<char>(std::cin), {})) : read_document(arguments.input);
    if (!read.ok()) {
      return show_errors({{std::string(code::kInput), std::string(read.status().message().data(), read.status().message().size()), "", {}}},
                         format);
    }
    input = *std::move(read);
  }
  const std::string& source = arguments.operands[0];
  const auto body = parse_query(source, syntax);
  if (const auto* error = std::get_if<Error>(&body)) return show_errors({*error}, format);
  QueryOptions options;
  options.strict_errors = arguments.strict_errors;
  options.limits.steps = UINT64_MAX;
  options.limits.elements = SIZE_MAX;
  options.print = [](std::string_view line) { std::cerr << line << '\n'; };
  const auto query = workspace.prepare(source);
  if (const auto* errors = std::get_if<Errors>(&query)) return show_errors(*errors, format);
  const auto answers = workspace.ask(std::get<Query>(query), input, options);
  if (const auto* error = std::get_if<Error>(&answers)) return show_errors({*error}, format);
  const auto& found = std::get<std::vector<Answer>>(answers);
  if (format != "discard") show(found, std::get<Body>(body), std::get<Query>(query).sources, source, format);
  if (arguments.fail && found.empty()) return 1;
  if (arguments.fail_defined && !found.empty()) return 1;
  return 0;
}

}  // namespace openshell::rego_program
