// The command line of `rego`.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace openshell::rego_program {

struct Arguments {
  std::string command;            ///< eval, test, batch, help
  std::vector<std::string> data;  ///< -d, --data
  std::string input;              ///< -i, --input
  bool input_from_stdin = false;  ///< -I, --stdin-input
  std::string format = "json";    ///< -f, --format
  bool format_given = false;
  bool strict_errors = false;  ///< -S, --strict-builtin-errors
  bool older_syntax = false;   ///< --v0-compatible
  bool fail = false;           ///< --fail: exit code 1 where the query is undefined
  bool fail_defined = false;   ///< --fail-defined
  bool verbose = false;        ///< -v, --verbose
  std::string run;             ///< -r, --run: tests whose name holds this
  std::vector<std::string> operands;
};

extern const char* const kUsage;

/// Nothing where the line is wrong: `problem` says how.
std::optional<Arguments> parse_arguments(int count, char** values, std::string& problem);

}  // namespace openshell::rego_program
