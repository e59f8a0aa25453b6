// Modules and data put together from texts, ready for queries. The way in for programs: no file is read here.
//
//   Workspace workspace;
//   if (auto error = workspace.add_module("rules.rego", text)) ...
//   if (auto errors = workspace.compile(); !errors.empty()) ...
//   auto answers = workspace.query("data.example.allow", input);
//
// A workspace and all its values belong to one thread at a time.
#pragma once

#include "policy/rego/compiler.hpp"
#include "policy/rego/machine.hpp"
#include "policy/rego/parser.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace openshell::policy::rego {

struct QueryOptions {
  Limits limits;
  bool strict_errors = false;
  std::function<void(std::string_view)> print;
};

class Workspace {
 public:
  /// `pure`: a built-in that reads more than its arguments (the clock, random numbers, the network) is an unknown function.
  explicit Workspace(Syntax syntax = Syntax::v1, bool pure = false) : syntax_(syntax), pure_(pure) {}

  std::optional<Error> add_module(std::string_view file, std::string_view source);
  /// Objects of several documents become one. INVALID_ARGUMENT where two give different values for the same place.
  absl::Status add_data(const Value& document);
  /// Errors of the modules; empty: queries may come. Call it once all modules are there.
  Errors compile();

  [[nodiscard]] const std::vector<Module>& modules() const noexcept { return modules_; }
  [[nodiscard]] const Value& data() const noexcept { return data_; }
  [[nodiscard]] const Program& program() const noexcept { return *program_; }

  /// Parsed and compiled; to be asked any number of times with ask().
  std::variant<Query, Errors> prepare(std::string_view query) const;
  std::variant<std::vector<Answer>, Error> ask(const Query& query, const Value& input, const QueryOptions& options = {}) const;
  /// Both at once.
  std::variant<std::vector<Answer>, Errors> query(std::string_view text, const Value& input, const QueryOptions& options = {}) const;

 private:
  Syntax syntax_;
  bool pure_;
  std::vector<Module> modules_;
  Value data_ = Value::sorted_object({});
  std::unique_ptr<Program> program_ = std::make_unique<Program>();
};

}  // namespace openshell::policy::rego
