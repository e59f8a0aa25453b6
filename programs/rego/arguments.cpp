#include "programs/rego/arguments.hpp"

#include <string_view>

namespace openshell::rego_program {

const char* const kUsage = R"(usage:
  rego eval [-d FILE]... [-i FILE | -I] [-f json|pretty|values|bindings|raw|discard] [-S] [--fail] [--fail-defined] [--v0-compatible] QUERY
      asks a query of modules (.rego) and data (.json, .yaml); prints {} where it is undefined
  rego test [-v] [-r TEXT] [-f pretty|json] [--v0-compatible] FILE...
      runs the rules whose name begins with test_; exit code 2 where one fails, todo_test_ is skipped
  rego batch
      reads cases as JSON, one a line, {"id","modules","data","input","query","v0","strict_builtin_errors"}, and writes {"id","result"}
      or {"id","error":{"code","message"}}
)";

namespace {

bool takes_value(std::string_view name) {
  return name == "-d" || name == "--data" || name == "-i" || name == "--input" || name == "-f" || name == "--format" || name == "-r" ||
         name == "--run";
}

bool set_value(Arguments& made, std::string_view name, const std::string& value) {
  if (name == "-d" || name == "--data") {
    made.data.push_back(value);
  } else if (name == "-i" || name == "--input") {
    made.input = value;
  } else if (name == "-f" || name == "--format") {
    made.format = value;
    made.format_given = true;
  } else {
    made.run = value;
  }
  return true;
}

bool set_flag(Arguments& made, std::string_view name) {
  if (name == "-I" || name == "--stdin-input") {
    made.input_from_stdin = true;
  } else if (name == "-S" || name == "--strict-builtin-errors") {
    made.strict_errors = true;
  } else if (name == "--v0-compatible") {
    made.older_syntax = true;
  } else if (name == "--v1-compatible") {
    made.older_syntax = false;
  } else if (name == "--fail") {
    made.fail = true;
  } else if (name == "--fail-defined") {
    made.fail_defined = true;
  } else if (name == "-v" || name == "--verbose") {
    made.verbose = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<Arguments> parse_arguments(int count, char** values, std::string& problem) {
  Arguments made;
  if (count < 2) {
    problem = "a command is missing";
    return std::nullopt;
  }
  made.command = values[1];
  bool options = true;
  for (int i = 2; i < count; ++i) {
    const std::string word = values[i];
    if (!options || word.size() < 2 || word[0] != '-') {
      made.operands.push_back(word);
      continue;
    }
    if (word == "--") {
      options = false;
      continue;
    }
    const auto equals = word.find('=');
    const std::string name = word.starts_with("--") ? word.substr(0, equals) : word;
    if (takes_value(name)) {
      if (word.starts_with("--") && equals != std::string::npos) {
        set_value(made, name, word.substr(equals + 1));
      } else if (i + 1 < count) {
        set_value(made, name, values[++i]);
      } else {
        problem = name + " needs a value";
        return std::nullopt;
      }
    } else if (!set_flag(made, word)) {
      problem = "unknown option " + word;
      return std::nullopt;
    }
  }
  return made;
}

}  // namespace openshell::rego_program
