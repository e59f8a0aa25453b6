#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/oidc/discovery.hpp"
#include "api/oidc/key_set.hpp"

// An issuer's documents come over TLS, yet from a party of its own. No key of a set verifies a token that nobody signed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace openshell::oidc;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  (void)read_discovery("https://id.test", text);
  const auto keys = KeySet::parse(text);
  if (!keys.ok()) return 0;
  for (const char* algorithm : {"RS256", "ES256", "EdDSA", "none"}) {
    if (keys->verify({algorithm, "k", {}, "a.b", std::string(64, '\1')}).ok()) __builtin_trap();
  }
  return 0;
}
