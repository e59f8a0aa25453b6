// The three launch files: what is taken is written again and taken again.
#include "isolation/boundary/launch_material.hpp"

#include <cstdlib>

using namespace openshell::boundary;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  if (auto x = parse_descriptor(bytes); x.ok() && !parse_descriptor(serialise(*x)).ok()) std::abort();
  if (auto x = parse_auth_bundle(bytes); x.ok() && !parse_auth_bundle(serialise(*x)).ok()) std::abort();
  if (auto x = parse_bootstrap(bytes); x.ok() && !parse_bootstrap(serialise(*x)).ok()) std::abort();
  return 0;
}
