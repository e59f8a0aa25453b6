// What a built-in function is to the evaluator: a name, a signature for the static check, and a function of its arguments.
#pragma once

#include "policy/rego/types.hpp"
#include "policy/rego/value.hpp"

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

/// What a query may cost. Counted, so a verdict is the same on every machine.
struct Limits {
  std::uint64_t steps = 1'000'000;
  std::size_t elements = 65'536;  ///< In one array, set, object; a string has at most 64 times as many bytes.
};

/// What one query lends to the built-ins it calls. Lives as long as the query; one thread.
class QueryContext {
 public:
  explicit QueryContext(Limits limits = {}) : limits_(limits) {}

  /// Counts work; RESOURCE_EXHAUSTED `limit exceeded: steps` when the query has spent its share. Call it with the size of what a built-in
  /// walks where that is not small.
  absl::Status charge(std::uint64_t steps) {
    steps_ += steps;
    return steps_ <= limits_.steps ? absl::OkStatus() : too_many_steps();
  }
  /// RESOURCE_EXHAUSTED `limit exceeded: elements`. Call it before building a collection whose size an argument decides.
  [[nodiscard]] absl::Status room_for(std::size_t elements) const {
    return elements <= limits_.elements ? absl::OkStatus() : too_many_elements();
  }
  [[nodiscard]] absl::Status room_for_text(std::size_t bytes) const { return room_for(bytes / 64); }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] const Limits& limits() const noexcept { return limits_; }

  /// Nanoseconds since 1970, the same for the whole query.
  std::int64_t now_ns = 0;
  /// Where `print` writes; empty: nowhere.
  std::function<void(std::string_view)> print;
  /// Errors of built-ins end the query instead of making the expression undefined.
  bool strict_errors = false;

  /// A place where built-ins keep what they made for this query (a compiled pattern, the answer of `rand.intn` for a key), by a name of
  /// their own.
  template <typename T>
  T& memory(std::string_view name) {
    auto& slot = memory_[std::string(name)];
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

 private:
  static absl::Status too_many_steps();
  static absl::Status too_many_elements();
  Limits limits_;
  std::uint64_t steps_ = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<void>> memory_;
};

/// The answer of a built-in: a value; an undefined Value where the call is simply undefined; or an error:
///   INVALID_ARGUMENT   `eval_type_error`, text as `operand 1 must be string but got number` (operand_error() writes it)
///   RESOURCE_EXHAUSTED `eval_limit_error`, ends the query
///   ABORTED            `eval_builtin_error` that ends the query even where errors are not strict
///   any other          `eval_builtin_error`
/// The evaluator puts the name and a colon before the text. Without strict errors the first and the last kind make the call undefined.
using BuiltinResult = absl::StatusOr<Value>;
/// The number of arguments is right when it is called; their kinds are whatever the policy computed.
using BuiltinFunction = BuiltinResult (*)(QueryContext& context, std::span<const Value> arguments);

struct Builtin {
  std::string_view name;        ///< `net.cidr_contains`; operators too: `plus`, `eq`, `internal.member_2`.
  std::vector<Type> arguments;  ///< In order.
  Type result;
  BuiltinFunction function = nullptr;
  bool nondeterministic = false;  ///< Reads more than its arguments: refused where a policy decides for a sandbox.
  bool relation = false;          ///< `walk`: the value is an array, each element of it one answer.
  bool variadic = false;          ///< `print`-like: any number of arguments beyond those listed.
};

/// Null where there is none of that name. The table is built once.
const Builtin* find_builtin(std::string_view name);
/// All of them, sorted by name.
std::span<const Builtin* const> all_builtins();

/// Each group of built-ins hands its table to the registry by a function that builtins.cpp calls.
using BuiltinTable = std::vector<Builtin>;

/// `operand POSITION must be EXPECTED but got KIND`; position counts from 1, expected is `string` or `one of {array, object, set}`.
absl::Status operand_error(std::size_t position, std::string_view expected, const Value& got);

}  // namespace openshell::policy::rego
