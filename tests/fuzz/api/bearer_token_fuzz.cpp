#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/oidc/claims.hpp"
#include "api/oidc/token.hpp"

// Whoever reaches the port can send a bearer. What is taken for a token has one spelling, and its claims make an identity or a refusal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace openshell;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto token = oidc::take_apart(text);
  if (!token.ok()) return 0;
  if (token->key_id.empty() || !text.starts_with(token->signed_text)) __builtin_trap();
  const auto who = oidc::identity_of(token->claims, {"https://id.test", "openshell-cli", "realm_access.roles", "scope"}, 1'700'000'000);
  if (who.ok() && who->subject.empty()) __builtin_trap();
  return 0;
}
