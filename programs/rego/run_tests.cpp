#include "policy/text.hpp"
#include "programs/rego/commands.hpp"
#include "programs/rego/files.hpp"

#include <chrono>
#include <iostream>
#include <set>

namespace openshell::rego_program {
namespace {

using namespace openshell::policy::rego;
using openshell::policy::text::cat;

enum class Outcome { pass, fail, error, skip };

struct Result {
  std::string name;
  std::string file;
  Position at;
  Outcome outcome = Outcome::fail;
  std::string message;
  std::vector<std::string> printed;
  long long microseconds = 0;
};

constexpr std::string_view word(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
      return "PASS";
    case Outcome::fail:
      return "FAIL";
    case Outcome::error:
      return "ERROR";
    case Outcome::skip:
      return "SKIPPED";
  }
  return "";
}

/// The rules to run, each once, in the order in which they are written.
std::vector<Result> tests_of(const Workspace& workspace, const std::string& wanted) {
  std::vector<Result> found;
  std::set<std::string> seen;
  for (const auto& module : workspace.modules()) {
    std::string package = "data";
    for (const auto& part : module.package) package += cat(".", part);
    for (const auto& rule : module.rules) {
      const std::string& name = rule.name.is_variable() ? rule.name.name : rule.name.parts[0].name;
      if ((!name.starts_with("test_") && !name.starts_with("todo_test_")) || rule.is_function) continue;
      Result result;
      result.name = cat(package, ".", name);
      if (!seen.insert(result.name).second) continue;
      if (!wanted.empty() && result.name.find(wanted) == std::string::npos) continue;
      result.file = module.file;
      result.at = rule.at;
      if (name.starts_with("todo_")) result.outcome = Outcome::skip;
      found.push_back(std::move(result));
    }
  }
  return found;
}

std::string query_of(const std::string& name) {
  std::string query = "data";
  std::size_t at = name.find('.');
  while (at != std::string::npos) {
    const std::size_t next = name.find('.', at + 1);
    query += '[';
    append_json_string(query, std::string_view(name).substr(at + 1, next == std::string::npos ? next : next - at - 1));
    query += ']';
    at = next;
  }
  return query;
}

void run(const Workspace& workspace, Result& result) {
  QueryOptions options;
  options.limits.steps = UINT64_MAX;
  options.limits.elements = SIZE_MAX;
  options.print = [&](std::string_view line) { result.printed.emplace_back(line); };
  const auto start = std::chrono::steady_clock::now();
  const auto answers = workspace.query(query_of(result.name), {}, options);
  result.microseconds = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  if (const auto* errors = std::get_if<Errors>(&answers)) {
    result.outcome = Outcome::error;
    result.message = describe(errors->front());
    return;
  }
  const auto& found = std::get<std::vector<Answer>>(answers);
  result.outcome = !found.empty() && !found[0].expressions[0].is_false() ? Outcome::pass : Outcome::fail;
}

void show(const std::vector<Result>& results, bool verbose) {
  std::string file;
  std::size_t counts[4] = {};
  for (const auto& result : results) {
    ++counts[static_cast<std::size_t>(result.outcome)];
    if (result.outcome == Outcome::pass && !verbose) continue;
    if (result.file != file) std::cout << (file.empty() ? "" : "\n") << result.file << ":\n";
    file = result.file;
    std::cout << result.name << ": " << word(result.outcome);
    if (result.outcome != Outcome::skip) std::cout << " (" << result.microseconds << "µs)";
    std::cout << '\n';
    if (!result.message.empty()) std::cout << "  " << result.message << '\n';
    for (const auto& line : result.printed) std::cout << "  " << line << '\n';
  }
  if (!file.empty()) std::cout << std::string(80, '-') << '\n';
  for (const auto outcome : {Outcome::pass, Outcome::fail, Outcome::error, Outcome::skip}) {
    const std::size_t count = counts[static_cast<std::size_t>(outcome)];
    if (count != 0 || (outcome == Outcome::pass && results.empty()))
      std::cout << word(outcome) << ": " << count << '/' << results.size() << '\n';
  }
}

void show_json(const std::vector<Result>& results) {
  std::vector<Value> rows;
  for (const auto& result : results) {
    std::vector<Member> members = {{Value::string("name"), Value::string(result.name)},
                                   {Value::string("file"), Value::string(result.file)},
                                   {Value::string("row"), Value::integer(result.at.row)},
                                   {Value::string("outcome"), Value::string(word(result.outcome))},
                                   {Value::string("microseconds"), Value::integer(result.microseconds)}};
    if (!result.message.empty()) members.push_back({Value::string("message"), Value::string(result.message)});
    rows.push_back(Value::object(std::move(members)));
  }
  std::cout << to_json(Value::array(std::move(rows))) << '\n';
}

}  // namespace

int run_tests(const Arguments& arguments) {
  std::vector<std::string> paths = arguments.operands;
  paths.insert(paths.end(), arguments.data.begin(), arguments.data.end());
  if (paths.empty()) {
    std::cerr << "rego test: at least one file is wanted\n" << kUsage;
    return 2;
  }
  Workspace workspace(arguments.older_syntax ? Syntax::v0 : Syntax::v1);
  if (const auto errors = load(paths, workspace); !errors.empty()) {
    for (const auto& error : errors) std::cerr << describe(error) << '\n';
    return 2;
  }
  auto results = tests_of(workspace, arguments.run);
  bool good = true;
  for (auto& result : results) {
    if (result.outcome != Outcome::skip) run(workspace, result);
    good = good && (result.outcome == Outcome::pass || result.outcome == Outcome::skip);
  }
  arguments.format == "json" && arguments.format_given ? show_json(results) : show(results, arguments.verbose);
  return good ? 0 : 2;
}

}  // namespace openshell::rego_program
