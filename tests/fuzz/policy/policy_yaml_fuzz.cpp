// Any text is read or refused with a message; a policy that was accepted compiles, and its own text form gives the very same policy.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/hash.hpp"
#include "policy/matcher.hpp"
#include "policy/parse.hpp"
#include "policy/serialize.hpp"
#include "sandbox.pb.h"

namespace policy = openshell::policy;

namespace {

void require(bool holds, const char* what, const std::string& detail) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what, detail.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto first = policy::load_policy(text);
  require(first.ok() != first.diagnostics.has_errors(), "neither a policy nor an error", "");
  if (!first.ok()) {
    require(!first.diagnostics.render().empty(), "an error without a text", "");
    return 0;
  }
  const auto matcher = policy::Matcher::compile(*first.policy);
  require(matcher.ok(), "an accepted policy does not compile", std::string{matcher.status().message()});
  const auto yaml = policy::to_yaml(*first.policy);
  require(yaml.ok(), "an accepted policy has no text", std::string{yaml.status().message()});
  const auto second = policy::load_policy(*yaml);
  require(second.ok(), "the text of an accepted policy is refused", second.diagnostics.render() + *yaml);
  require(policy::policy_hash(*first.policy) == policy::policy_hash(*second.policy), "the text of a policy means another policy", *yaml);
  return 0;
}
