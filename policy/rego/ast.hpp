// A parsed module: what was written, names not yet resolved.
#pragma once

#include "policy/rego/error.hpp"
#include "policy/rego/value.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace openshell::policy::rego {

struct Expr;
using Body = std::vector<Expr>;

enum class TermForm : std::uint8_t {
  scalar,
  variable,              ///< name
  reference,             ///< parts: head (a variable or any other term), then the path
  array,                 ///< parts: items
  set,                   ///< parts: items
  object,                ///< parts: key, value, key, value ...
  array_comprehension,   ///< parts: the item; body
  set_comprehension,     ///< parts: the item; body
  object_comprehension,  ///< parts: key, value; body
  call,                  ///< parts: the function (variable or reference), then arguments
  interpolation          ///< parts: scalars and terms
};

struct Term {
  TermForm form = TermForm::scalar;
  Position at;
  Value scalar;
  std::string name;
  std::vector<Term> parts;
  std::shared_ptr<const Body> body;

  [[nodiscard]] bool is_variable() const { return form == TermForm::variable; }
  [[nodiscard]] bool is_variable(std::string_view wanted) const { return form == TermForm::variable && name == wanted; }
  [[nodiscard]] bool is_string() const { return form == TermForm::scalar && scalar.is_string(); }
};

struct With {
  Term target;
  Term value;
  Position at;
};

enum class ExprForm : std::uint8_t {
  term,     ///< terms: one
  unify,    ///< terms: left, right
  assign,   ///< terms: left, right
  some,     ///< terms: the variables
  some_in,  ///< terms: [key], value, domain
  every     ///< terms: [key], value, domain; body
};

struct Expr {
  ExprForm form = ExprForm::term;
  bool negated = false;
  Position at;
  std::vector<Term> terms;
  std::shared_ptr<const Body> body;
  std::vector<With> withs;
  std::size_t begin = 0;  ///< Bytes of the source.
  std::size_t end = 0;
};

struct Rule {
  Position at;
  bool is_default = false;
  bool is_function = false;
  bool is_set = false;   ///< `name contains key`, or the older `name[key] { .. }`
  bool assigns = false;  ///< `:=`, not `=`
  bool has_body = false;
  Term name;  ///< Variable or reference.
  std::vector<Term> arguments;
  std::optional<Term> key;  ///< Of a set.
  std::optional<Term> value;
  Body body;
  std::shared_ptr<const Rule> otherwise;
};

struct Import {
  Position at;
  std::vector<Term> path;  ///< First a variable: `data`, `input`; then scalars.
  std::string alias;       ///< Empty: the last part of the path.
};

struct Module {
  std::string file;
  bool strict = true;  ///< Rules of v1.
  Position at;
  std::vector<std::string> package;  ///< Without `data`.
  std::vector<Import> imports;
  std::vector<Rule> rules;
};

/// A term as the language writes it, for messages.
std::string to_text(const Term& term);

}  // namespace openshell::policy::rego
