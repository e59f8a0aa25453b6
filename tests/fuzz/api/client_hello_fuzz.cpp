#include <cstddef>
#include <cstdint>

#include "api/client_hello.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using openshell::api::Opening;
  const auto whole = openshell::api::classify({data, size});
  // What is decided on a part stays decided: otherwise a slow client would be served differently from a fast one.
  for (std::size_t part = 1; part < size; part += 1 + part / 4) {
    const auto early = openshell::api::classify({data, part});
    if (early != Opening::kNeedMore && early != whole) __builtin_trap();
  }
  return 0;
}
