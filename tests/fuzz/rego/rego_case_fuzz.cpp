// A line of `rego batch` of any bytes: always one JSON object with a result or an error.
#include "policy/rego/batch.hpp"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace openshell::policy::rego;
  Limits limits;
  limits.steps = 20'000;
  limits.elements = 500;
  const auto answer = parse_json(answer_case({reinterpret_cast<const char*>(data), size}, limits));
  if (!answer.ok() || (answer->find("result") == nullptr) == (answer->find("error") == nullptr)) std::abort();
  return 0;
}
