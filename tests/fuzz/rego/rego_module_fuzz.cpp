// A module of any bytes: it is refused with a code and a sentence, or it compiles and the whole package is asked within its limits. Both
// times the same answer.
#include "policy/rego/batch.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace openshell::policy::rego;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  Limits limits;
  limits.steps = 20'000;
  limits.elements = 500;
  for (const bool older : {false, true}) {
    const Value line = Value::object({{Value::string("id"), Value::integer(1)},
                                      {Value::string("modules"), Value::array({Value::string(text)})},
                                      {Value::string("query"), Value::string("x = data.a")},
                                      {Value::string("v0"), Value::boolean(older)}});
    const std::string asked = to_json(line);
    const auto answer = parse_json(answer_case(asked, limits));
    if (!answer.ok()) std::abort();
    if (const Value* error = answer->find("error")) {
      if (error->find("code")->text().empty() || error->find("message")->text().empty()) std::abort();
    } else if (answer->find("result") == nullptr) {
      std::abort();
    }
  }
  return 0;
}
