// The shared parts of values, for the files that implement Value.
#pragma once

#include "policy/rego/number.hpp"
#include "policy/rego/value.hpp"

namespace openshell::policy::rego {

struct Value::StringPart : Heap {
  std::string bytes;
};
struct Value::ItemsPart : Heap {
  std::vector<Value> items;
};
struct Value::MembersPart : Heap {
  std::vector<Member> members;
};
struct Value::NumberPart : Heap {
  Number number;
};

}  // namespace openshell::policy::rego
