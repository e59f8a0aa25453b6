// What is wrong with a policy or a query, as the language's own program names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

/// Both count from 1; 0: not known. Columns are bytes.
struct Position {
  std::uint32_t row = 0;
  std::uint32_t column = 0;
};

namespace code {
inline constexpr std::string_view kParse = "rego_parse_error";
inline constexpr std::string_view kCompile = "rego_compile_error";
inline constexpr std::string_view kType = "rego_type_error";
inline constexpr std::string_view kUnsafe = "rego_unsafe_var_error";
inline constexpr std::string_view kRecursion = "rego_recursion_error";
inline constexpr std::string_view kConflict = "eval_conflict_error";
inline constexpr std::string_view kBuiltin = "eval_builtin_error";
inline constexpr std::string_view kEvalType = "eval_type_error";
inline constexpr std::string_view kMerge = "eval_with_merge_error";
// Of this evaluator only.
inline constexpr std::string_view kInput = "input_error";
inline constexpr std::string_view kEvalLimit = "eval_limit_error";
inline constexpr std::string_view kLoadLimit = "load_limit_error";
}  // namespace code

struct Error {
  std::string code;
  std::string message;
  std::string file;  ///< Empty: the query.
  Position at;
};
using Errors = std::vector<Error>;

/// `FILE:ROW: CODE: MESSAGE`, without the file and row where they are not known.
std::string describe(const Error& error);

}  // namespace openshell::policy::rego
