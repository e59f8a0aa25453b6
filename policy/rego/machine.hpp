// Evaluates queries: top down, each rule and each call of a function once for the same input.
#pragma once

#include "policy/rego/error.hpp"
#include "policy/rego/program.hpp"
#include "policy/rego/value.hpp"

#include <absl/container/flat_hash_map.h>
#include <absl/functional/function_ref.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace openshell::policy::rego {

/// Rules and functions inside one another: the evaluator uses the stack of its thread.
inline constexpr unsigned kMaxCallDepth = 500;

struct Answer {
  std::vector<Value> expressions;
  std::vector<std::pair<std::string, Value>> bindings;
};

class Machine {
 public:
  /// `input` undefined: there is none. The program and the context outlive the machine.
  Machine(const Program& program, Value data, Value input, QueryContext& context);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// All answers in order; none: undefined.
  std::variant<std::vector<Answer>, Error> run(const Query& query);

 private:
  enum class Flow : std::uint8_t { on, stop };
  using Sink = absl::FunctionRef<Flow()>;
  using Take = absl::FunctionRef<Flow(const Value&)>;

  /// Values that `with` puts in place of documents: a tree like that of the rules.
  struct Replaced {
    Value value;
    std::map<std::string, std::shared_ptr<const Replaced>, std::less<>> children;
  };
  struct Mock {
    Value value;
    const Builtin* builtin = nullptr;
    RuleGroup* group = nullptr;
  };
  struct CallKey {
    const RuleGroup* group;
    std::vector<Value> arguments;
    friend bool operator==(const CallKey& a, const CallKey& b) { return a.group == b.group && a.arguments == b.arguments; }
  };
  struct CallView {
    const RuleGroup* group;
    std::span<const Value> arguments;
  };
  struct CallHash {
    using is_transparent = void;
    static std::size_t of(const RuleGroup* group, std::span<const Value> arguments);
    std::size_t operator()(const CallKey& key) const { return of(key.group, key.arguments); }
    std::size_t operator()(const CallView& key) const { return of(key.group, key.arguments); }
  };
  struct CallEqual {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return a.group == b.group && std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end());
    }
  };
  struct Known {
    bool done = false;
    Value value;
  };
  /// What documents and functions are: `with` makes a new one.
  struct World {
    Value input;
    Value data;
    std::shared_ptr<const Replaced> replaced;
    absl::flat_hash_map<const void*, Mock> mocks;
    std::vector<Known> documents;  ///< By index of the group.
    absl::flat_hash_map<CallKey, Value, CallHash, CallEqual> calls;
    absl::flat_hash_map<const Node*, Value> nodes;
  };

  // Errors: the first one ends the query.
  [[nodiscard]] bool failed() const { return failed_; }
  Flow fail(std::string_view code, Position at, std::string message);
  Flow fail(Position at, const absl::Status& status);
  bool charge(Position at);

  // Plans (machine_steps.cpp).
  Flow steps(const Plan& plan, std::size_t from, Value* frame, Sink sink);
  bool answers(const Plan& plan, Value* frame);
  bool match(const Pattern& pattern, const Value& value, Value* frame);
  Flow scan_value(const Value& base, std::span<const Pattern> path, Value* frame, Take take);
  bool holds_for_every(const Step& step, Value* frame);
  Flow relate(const Step& step, Value* frame, Take take);

  // Expressions (machine_values.cpp).
  /// Where the value is, without a copy where it exists already; `hold` keeps it otherwise. Null: undefined, or failed().
  const Value* peek(const Expression& expression, Value* frame, Value& hold);
  Value value(const Expression& expression, Value* frame);
  Value computed(const Expression& expression, Value* frame);
  const Value* looked_up(const Expression& expression, std::size_t from, const Value* base, Value* frame, Value& hold);
  Value compare(const Expression& expression, Value* frame);
  Value member(const Expression& expression, Value* frame);
  Value collection(const Expression& expression, Value* frame);
  Value comprehension(const Expression& expression, Value* frame);
  Value unique_members(std::vector<Member> members, Position at, std::string_view otherwise);
  Value interpolated(const Expression& expression, Value* frame);
  Value printed(const Expression& expression, Value* frame);
  Value builtin_call(const Expression& expression, Value* frame);
  Value call_builtin(const Builtin& builtin, std::span<const Value> arguments, Position at);
  bool arguments(const Expression& expression, Value* frame, Value* into);
  bool fits(std::size_t elements, Position at);

  // Documents (machine_data.cpp).
  Value data_value(const Expression& expression, Value* frame);
  Flow scan_data(const Step& step, Value* frame, Take take);
  Flow walk(const Node* node, const Value* base, const Replaced* replaced, std::span<const Pattern> path, Value* frame, Take take);
  Value document(const Node& node);
  Value whole(const Node* node, const Value* base, const Replaced* replaced);
  const Value* base_of(const Node& node);
  Value overlaid(const Value& document, const Replaced& replaced);
  Flow walk_replaced(const Expression& expression, std::span<const Pattern> path, Value* frame, Take take);

  // Rules (machine_rules.cpp).
  Value rule(const RuleGroup& group);
  Value complete(const RuleGroup& group);
  Value partial_set(const RuleGroup& group);
  Value partial_object(const RuleGroup& group);
  Value call(const RuleGroup& group, std::span<const Value> arguments, Position at);
  Value evaluate_function(const RuleGroup& group, std::span<const Value> arguments, Position at);
  bool clause_chain(const RuleGroup& group, const Clause& first, std::span<const Value> arguments, Value& result);
  const Mock* mock(const void* function) const;

  // With (machine_with.cpp).
  Flow with(const Step& step, Value* frame, Sink sink);
  bool apply(const Override& override, World& world, Value* frame);
  static Value put(const Value& into, std::span<const Value> path, const Value& value, bool& clash);

  // Frames.
  struct Chunk {
    std::unique_ptr<Value[]> values;
    std::size_t size = 0;
    std::size_t used = 0;
  };
  class Frame {
   public:
    Frame(Machine& machine, std::size_t count);
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    Value* slots;

   private:
    void slots_of(Chunk& chunk);
    Machine& machine_;
    std::size_t count_;
    std::size_t chunk_;
    std::size_t used_;
  };

  const Program& program_;
  QueryContext& context_;
  std::unique_ptr<World> first_;
  World* world_;
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;
  unsigned depth_ = 0;
  bool failed_ = false;
  std::optional<Error> error_;
  const std::string* file_ = nullptr;  ///< Of the clause at work.
};

}  // namespace openshell::policy::rego
