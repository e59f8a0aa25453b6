// A compiled policy: names resolved, bodies ordered, every variable a place in a frame.
//
// In an ordered body it is known where each variable gets its value, so evaluation needs neither environments nor an undo list: a statement
// that is tried again overwrites what it gave before.
//
// Programs hold values, whose counts are not atomic: a program belongs to one thread at a time.
#pragma once

#include "policy/rego/builtins.hpp"
#include "policy/rego/error.hpp"
#include "policy/rego/value.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

using Slot = std::uint32_t;

struct Node;
struct RuleGroup;
struct Step;
using Plan = std::vector<Step>;

/// What gives at most one value when all its variables have one.
struct Expression {
  enum class Form : std::uint8_t {
    constant,
    slot,
    input,                 ///< The input document.
    data,                  ///< node/group and parts: see DataPath
    lookup,                ///< parts: base, then keys
    array,                 ///< parts
    set,                   ///< parts
    object,                ///< parts: key, value ...
    builtin,               ///< parts: arguments
    function,              ///< parts: arguments
    compare,               ///< parts: two; comparison says how
    add,                   ///< parts: two
    subtract,              ///< parts: two
    member,                ///< parts: element, collection
    member_at,             ///< parts: key, element, collection
    array_comprehension,   ///< plan, parts: item
    set_comprehension,     ///< plan, parts: item
    object_comprehension,  ///< plan, parts: key, value
    interpolation,         ///< parts: constants, and arrays of one that stand for holes
    print                  ///< parts: set comprehensions
  };
  enum class Comparison : std::uint8_t { equal, not_equal, less, at_most, greater, at_least };

  Form form = Form::constant;
  Comparison comparison = Comparison::equal;
  Position at;
  Slot slot = 0;
  Value constant;
  std::vector<Expression> parts;
  const Builtin* builtin = nullptr;
  RuleGroup* group = nullptr;  ///< function: what is called; data: the rules that the path ends in, if any.
  const Node* node = nullptr;  ///< data: the last node of the rule tree on the path.
  std::uint32_t depth = 0;     ///< data: how many parts lead to `node`.
  std::shared_ptr<const Plan> plan;
};

/// What a value is taken apart by; variables in it get their values.
struct Pattern {
  enum class Form : std::uint8_t { ignore, bind, equal, array, object };
  Form form = Form::ignore;
  Slot slot = 0;
  Expression expression;         ///< equal
  std::vector<Expression> keys;  ///< object
  std::vector<Pattern> items;    ///< array, object
};

struct Override {
  enum class Form : std::uint8_t { input, data, function };
  Form form = Form::input;
  std::vector<Value> path;  ///< input, data: below the root.
  Expression value;
  const Builtin* builtin = nullptr;  ///< function: what is replaced ...
  RuleGroup* group = nullptr;
  const Builtin* by_builtin = nullptr;  ///< ... and by what, if not by a value.
  RuleGroup* by_group = nullptr;
  Position at;
};

struct Step {
  enum class Form : std::uint8_t {
    test,     ///< expression is defined and not false
    defined,  ///< expression is defined
    bind,     ///< slot := expression
    match,    ///< pattern against expression
    scan,     ///< expression[path...] against pattern, once for each way
    relate,   ///< each answer of a relation against pattern
    negate,   ///< plan has no answer
    every,    ///< expression is a collection; path: key, value; plan has an answer for each member
    with,     ///< plan under overrides
    fail
  };
  Form form = Form::test;
  Position at;
  Slot slot = 0;
  Expression expression;
  Pattern pattern;
  std::vector<Pattern> path;
  std::shared_ptr<const Plan> plan;
  std::vector<Override> overrides;
};

/// One body of a rule and its head.
struct Clause {
  Position at;
  const std::string* file = nullptr;
  Slot slots = 0;
  std::vector<Pattern> arguments;  ///< Of a function.
  Plan plan;
  std::vector<Expression> keys;  ///< Where in a partial document the value goes.
  Expression value;              ///< Or the element of a set.
  bool is_set = false;
  bool constant = false;  ///< The value is the same for all answers of the body.
  std::unique_ptr<Clause> otherwise;
};

/// All rules of one name.
struct RuleGroup {
  enum class Form : std::uint8_t { complete, set, object, function };
  Form form = Form::complete;
  std::uint32_t index = 0;
  std::string name;  ///< `data.package.rule`
  std::size_t arity = 0;
  std::vector<std::unique_ptr<Clause>> clauses;
  std::unique_ptr<Clause> fallback;  ///< The default.
  const Node* node = nullptr;
  Position at;
  std::string file;
};

/// The tree of packages and rules below `data`.
struct Node {
  std::string key;
  const Node* parent = nullptr;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> children;
  std::unique_ptr<RuleGroup> group;
  bool has_documents = false;  ///< Some rule that is no function stands here or below.
  bool is_package = false;
  std::string file;  ///< Of the first module of the package.
  Position at;

  [[nodiscard]] const Node* child(std::string_view name) const {
    const auto found = children.find(name);
    return found == children.end() ? nullptr : found->second.get();
  }
};

/// A query that was compiled against a program, and must not outlive it.
struct Query {
  Slot slots = 0;
  Plan plan;
  std::vector<Slot> expressions;     ///< Slot of each expression's value; kTrue where it has none.
  std::vector<std::size_t> sources;  ///< Which of the written expressions (without `some`) each is.
  std::vector<std::pair<std::string, Slot>> bindings;
  static constexpr Slot kTrue = UINT32_MAX;
};

struct Program {
  Node root;
  std::vector<RuleGroup*> groups;
  std::vector<std::unique_ptr<std::string>> files;
};

}  // namespace openshell::policy::rego
