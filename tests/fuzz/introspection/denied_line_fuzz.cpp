// The line of a denied request, as a supervisor worded it round what a workload chose.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/operator/denial_trace.hpp"
#include "api/operator/operator_routes.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace openshell::api;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  if (const auto open = parse_denied_line(text)) {
    if (open->host.empty() || open->port == 0 || open->port > 65'535) __builtin_trap();
  }
  if (query_value("/denials?id=" + std::string{text}, "id").size() > 256) __builtin_trap();
  return 0;
}
