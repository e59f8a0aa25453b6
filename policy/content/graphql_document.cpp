#include "policy/content/graphql_document.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "policy/content/graphql_lexer.hpp"

namespace openshell::policy {
namespace {

// What a selection set names on its own level: fields, spread fragments; inline fragments count as part of it.
struct Selections {
  std::vector<std::string_view> fields;
  std::vector<std::string_view> spreads;
};

struct Operation {
  std::string_view type;
  std::string_view name;
  Selections root;
};

// A recursive descent over the grammar. The first fault ends it; every rule is false from then on.
class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_{text} { advance(); }

  bool document() {
    while (token_.kind != GraphqlToken::Kind::end) {
      if (!definition()) return fail("the document is no executable GraphQL document");
    }
    return true;
  }

  std::vector<Operation> operations;
  std::map<std::string_view, Selections> fragments;
  std::string_view error;

 private:
  class Level {
   public:
    explicit Level(Parser& parser) : parser_{parser} { ++parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.depth_; }
    [[nodiscard]] bool ok() const { return parser_.depth_ <= kMaxGraphqlDepth || parser_.fail("the document is nested too deeply"); }

   private:
    Parser& parser_;
  };

  bool fail(std::string_view why) {
    if (error.empty()) error = why;
    return false;
  }
  void advance() {
    token_ = lexer_.next();
    if (token_.kind == GraphqlToken::Kind::error) fail(token_.text);
  }
  bool take(std::string_view punctuator) {
    if (!error.empty() || !token_.is(punctuator)) return false;
    advance();
    return true;
  }
  [[nodiscard]] bool at_name() const { return token_.kind == GraphqlToken::Kind::name; }
  [[nodiscard]] bool at_name(std::string_view text) const { return at_name() && token_.text == text; }
  bool name(std::string_view& out) {
    if (!error.empty() || !at_name()) return false;
    out = token_.text;
    advance();
    return true;
  }
  bool name() {
    std::string_view unused;
    return name(unused);
  }

  // --- definitions

  bool definition() {
    if (token_.is("{")) {
      operations.push_back({"query", {}, {}});
      return selection_set(&operations.back().root);
    }
    if (at_name("fragment")) return fragment();
    if (!at_name("query") && !at_name("mutation") && !at_name("subscription")) return false;
    operations.push_back({token_.text, {}, {}});
    advance();
    if (at_name() && !name(operations.back().name)) return false;
    return variable_definitions() && directives() && selection_set(&operations.back().root);
  }

  bool fragment() {
    advance();
    std::string_view called;
    if (at_name("on") || !name(called) || !type_condition() || !directives()) return false;
    Selections selections;
    if (!selection_set(&selections)) return false;
    return fragments.emplace(called, std::move(selections)).second || fail("the document defines a fragment twice");
  }

  bool type_condition() {
    if (!at_name("on")) return false;
    advance();
    return name();
  }

  bool variable_definitions() {
    if (!take("(")) return error.empty();
    do {
      if (!variable() || !take(":") || !type()) return false;
      if (take("=") && !value()) return false;
      if (!directives()) return false;
    } while (!token_.is(")") && error.empty());
    return take(")");
  }

  bool variable() { return take("$") && name(); }

  bool type() {
    const Level level{*this};
    if (!level.ok()) return false;
    if (take("[") ? !type() || !take("]") : !name()) return false;
    take("!");
    return error.empty();
  }

  // --- selections

  // `into` null: below the root, where only the form counts.
  bool selection_set(Selections* into) {
    const Level level{*this};
    if (!level.ok() || !take("{")) return false;
    do {
      if (!selection(into)) return false;
    } while (!token_.is("}") && error.empty());
    return take("}");
  }

  bool selection(Selections* into) {
    if (!take("...")) return field(into);
    if (at_name() && token_.text != "on") {
      std::string_view called;
      if (!name(called)) return false;
      if (into != nullptr) into->spreads.push_back(called);
      all_spreads_.insert(called);
      return directives();
    }
    if (at_name() && !type_condition()) return false;
    return directives() && selection_set(into);
  }

  bool field(Selections* into) {
    std::string_view called;
    if (!name(called)) return false;
    if (take(":") && !name(called)) return false;  // what stood before was an alias
    if (into != nullptr) into->fields.push_back(called);
    if (!arguments() || !directives()) return false;
    return !token_.is("{") || selection_set(nullptr);
  }

  bool arguments() {
    if (!take("(")) return error.empty();
    do {
      if (!name() || !take(":") || !value()) return false;
    } while (!token_.is(")") && error.empty());
    return take(")");
  }

  bool directives() {
    while (take("@")) {
      if (!name() || !arguments()) return false;
    }
    return error.empty();
  }

  bool value() {
    const Level level{*this};
    if (!level.ok()) return false;
    if (token_.is("$")) return variable();
    if (take("[")) {
      while (!token_.is("]")) {
        if (!value()) return false;
      }
      return take("]");
    }
    if (take("{")) {
      while (!token_.is("}")) {
        if (!name() || !take(":") || !value()) return false;
      }
      return take("}");
    }
    using Kind = GraphqlToken::Kind;
    if (token_.kind != Kind::name && token_.kind != Kind::number && token_.kind != Kind::string) return false;
    advance();
    return error.empty();
  }

 public:
  [[nodiscard]] bool spreads_exist() const {
    return std::all_of(all_spreads_.begin(), all_spreads_.end(), [this](std::string_view name) { return fragments.contains(name); });
  }

 private:
  GraphqlLexer lexer_;
  GraphqlToken token_;
  std::size_t depth_ = 0;
  std::set<std::string_view> all_spreads_;
};

// Every field that the root selects, through fragments; a fragment is followed once, so a cycle ends.
std::vector<std::string> fields_of(const Parser& parsed, const Selections& root) {
  std::set<std::string_view> fields{root.fields.begin(), root.fields.end()};
  std::set<std::string_view> followed;
  std::vector<std::string_view> open{root.spreads.begin(), root.spreads.end()};
  while (!open.empty()) {
    const auto name = open.back();
    open.pop_back();
    if (!followed.insert(name).second) continue;
    const auto& fragment = parsed.fragments.at(name);
    fields.insert(fragment.fields.begin(), fragment.fields.end());
    open.insert(open.end(), fragment.spreads.begin(), fragment.spreads.end());
  }
  return {fields.begin(), fields.end()};
}

}  // namespace

absl::StatusOr<GraphqlDefinition> read_graphql_document(std::string_view document, std::string_view operation_name) {
  const auto refuse = [](std::string_view why) { return absl::InvalidArgumentError(std::string{why}); };
  Parser parsed{document};
  if (!parsed.document()) return refuse(parsed.error);
  const auto& operations = parsed.operations;
  if (operations.empty()) return refuse("the document has no operation");
  if (!parsed.spreads_exist()) return refuse("the document uses a fragment that it does not define");
  std::set<std::string_view> names;
  for (const auto& operation : operations) {
    if (operation.name.empty() && operations.size() > 1) return refuse("the document has an unnamed operation beside another");
    if (!names.insert(operation.name).second) return refuse("the document has two operations of one name");
  }
  if (operation_name.empty() && operations.size() > 1) return refuse("operationName is needed where the document has several operations");
  const auto chosen = std::find_if(operations.begin(), operations.end(),
                                   [&](const Operation& one) { return operation_name.empty() || one.name == operation_name; });
  if (chosen == operations.end()) return refuse("operationName names no operation of the document");
  return GraphqlDefinition{std::string{chosen->type}, std::string{chosen->name}, fields_of(parsed, chosen->root)};
}

}  // namespace openshell::policy
