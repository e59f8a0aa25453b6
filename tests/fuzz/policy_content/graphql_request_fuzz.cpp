// A body, also as a WebSocket message: it is read or refused with a reason, and never both.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "policy/content/graphql.hpp"

namespace policy = openshell::policy;

namespace {

void check(const policy::GraphqlContent& content) {
  if (content.error.empty() == content.operations.empty()) std::abort();
  for (const auto& operation : content.operations) {
    if (operation.type.empty() && !operation.persisted) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const std::vector<std::string_view> json{"application/json"};
  check(policy::classify_graphql("POST", {}, {json, {}}, text));
  const auto message = policy::classify_graphql_message(text);
  if (message.control) {
    if (!message.content.error.empty() || !message.content.operations.empty()) std::abort();
  } else {
    check(message.content);
  }
  return 0;
}
