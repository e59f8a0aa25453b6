// Any bytes as the protobuf form of a policy: refused with a reason, or canonical, compiled, written as text and read back as the same
// policy.
#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/evaluator_data.hpp"
#include "policy/hash.hpp"
#include "policy/matcher.hpp"
#include "policy/normalize.hpp"
#include "policy/parse.hpp"
#include "policy/serialize.hpp"
#include "policy/validate.hpp"
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
  policy::pb::SandboxPolicy message;
  google::protobuf::io::CodedInputStream stream{data, static_cast<int>(size)};
  stream.SetRecursionLimit(64);
  if (size > (1U << 20U) || !message.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) return 0;
  const auto sent = policy::policy_hash(message);
  const auto status = policy::admit(message);
  if (!status.ok()) {
    require(!status.message().empty(), "a refusal without a reason", "");
    require(policy::policy_hash(message) == sent, "a refused policy was changed", "");
    return 0;
  }
  const auto hash = policy::policy_hash(message);
  policy::normalize(message, policy::Provenance::clear);
  require(policy::policy_hash(message) == hash, "normalising twice changes something", "");
  const auto matcher = policy::Matcher::compile(message);
  require(matcher.ok(), "an admitted policy does not compile", std::string{matcher.status().message()});
  require(!policy::evaluator_data(**matcher).empty(), "no data", "");
  const auto yaml = policy::to_yaml(message);
  require(yaml.ok(), "an admitted policy has no text", std::string{yaml.status().message()});
  const auto again = policy::load_policy(*yaml);
  require(again.ok(), "the text of an admitted policy is refused", again.diagnostics.render() + *yaml);
  require(policy::policy_hash(*again.policy) == hash, "the text of a policy means another policy", *yaml);
  return 0;
}
