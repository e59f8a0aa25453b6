// Source text of the language to modules and queries.
#pragma once

#include "policy/rego/ast.hpp"
#include "policy/rego/error.hpp"

#include <string>
#include <string_view>
#include <variant>

namespace openshell::policy::rego {

/// Terms, bodies and parentheses inside one another.
inline constexpr int kMaxNesting = 128;

/// Which syntax a text without a word about it has.
enum class Syntax : std::uint8_t { v1, v0 };

/// The module, or one error (the first): `rego_parse_error`, `load_limit_error`.
std::variant<Module, Error> parse_module(std::string_view file, std::string_view source, Syntax syntax);

/// A query: expressions separated by `;` or line ends. In v0 all words of v1 are understood too (as if imported).
std::variant<Body, Error> parse_query(std::string_view source, Syntax syntax = Syntax::v1);

}  // namespace openshell::policy::rego
