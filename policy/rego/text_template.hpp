// Templates of `strings.render_template`: the actions of Go's text/template that make sense for a policy. Internal to the built-ins.
#pragma once

#include "policy/rego/builtins.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego::text_template {

/// Levels that actions and parentheses may be nested.
inline constexpr int kMaxNesting = 64;

struct Pipeline;

/// One word of a command: a literal, a place in the data or in a variable, a function, or a pipeline in parentheses.
struct Operand {
  enum class Form { literal, place, function, inner };
  Form form = Form::literal;
  Value literal;
  std::string name;  ///< place: the variable, `$` for the data as a whole, empty for the dot. function: its name.
  std::vector<std::string> fields;
  std::shared_ptr<const Pipeline> inner;
};
using Command = std::vector<Operand>;

struct Pipeline {
  std::vector<std::string> variables;
  bool declares = false;  ///< `:=`, not `=`.
  std::vector<Command> commands;
};

struct Node {
  enum class Form { text, output, choice, loop, scope };
  Form form = Form::text;
  std::string text;
  Pipeline pipeline;
  std::vector<Node> body;
  std::vector<Node> otherwise;
};

/// UNKNOWN with what is wrong, as `template: template:1: unclosed action`.
absl::StatusOr<std::vector<Node>> parse(std::string_view text);

/// RESOURCE_EXHAUSTED where the query may not go on, UNKNOWN where the data do not fit.
absl::StatusOr<std::string> render(QueryContext& context, const std::vector<Node>& nodes, const Value& data);

}  // namespace openshell::policy::rego::text_template
