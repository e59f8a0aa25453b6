#include "policy/rego/builtins_types.hpp"

#include "policy/rego/number.hpp"

namespace openshell::policy::rego {
namespace {

using Arguments = std::span<const Value>;

template <Kind Wanted>
BuiltinResult is(QueryContext& /*context*/, Arguments a) {
  return Value::boolean(a[0].kind() == Wanted);
}

template <Kind Wanted>
BuiltinResult cast(QueryContext& /*context*/, Arguments a) {
  if (a[0].kind() == Wanted) return a[0];
  if constexpr (Wanted == Kind::array) {
    if (a[0].is_set()) return Value::array({a[0].items().begin(), a[0].items().end()});
  }
  if constexpr (Wanted == Kind::set) {
    if (a[0].is_array()) return Value::set({a[0].items().begin(), a[0].items().end()});
  }
  return operand_error(1, kind_name(Wanted), a[0]);
}

BuiltinResult type_name(QueryContext& /*context*/, Arguments a) { return Value::string(kind_name(a[0].kind())); }

BuiltinResult to_number(QueryContext& /*context*/, Arguments a) {
  switch (a[0].kind()) {
    case Kind::null:
      return Value::integer(0);
    case Kind::boolean:
      return Value::integer(a[0].is_true() ? 1 : 0);
    case Kind::number:
      return a[0];
    case Kind::string: {
      Value number = Number::parse(a[0].text());
      if (!number.is_defined()) return absl::UnknownError("invalid syntax");
      return number;
    }
    default:
      return operand_error(1, "one of {null, boolean, number, string}", a[0]);
  }
}

}  // namespace

const BuiltinTable& type_builtins() {
  using namespace types;
  static const BuiltinTable table = {
      {"is_null", {any()}, boolean(), is<Kind::null>},
      {"is_boolean", {any()}, boolean(), is<Kind::boolean>},
      {"is_number", {any()}, boolean(), is<Kind::number>},
      {"is_string", {any()}, boolean(), is<Kind::string>},
      {"is_array", {any()}, boolean(), is<Kind::array>},
      {"is_object", {any()}, boolean(), is<Kind::object>},
      {"is_set", {any()}, boolean(), is<Kind::set>},
      {"type_name", {any()}, string(), type_name},
      {"to_number", {any_of({number(), string(), boolean(), null()})}, number(), to_number},
      {"cast_null", {any()}, null(), cast<Kind::null>},
      {"cast_boolean", {any()}, boolean(), cast<Kind::boolean>},
      {"cast_string", {any()}, string(), cast<Kind::string>},
      {"cast_array", {any()}, array_of(any()), cast<Kind::array>},
      {"cast_set", {any()}, set_of(any()), cast<Kind::set>},
      {"cast_object", {any()}, object_of(any(), any()), cast<Kind::object>},
  };
  return table;
}

}  // namespace openshell::policy::rego
