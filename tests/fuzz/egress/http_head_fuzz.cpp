// Request heads: whatever parses must say the same when it is written and read again, and its target must be a fixed point.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "egress/credentials/rewrite.hpp"
#include "egress/http/body.hpp"
#include "egress/http/head.hpp"
#include "egress/http/target.hpp"

namespace http = openshell::egress::http;

static void require(bool holds) {
  if (!holds) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto length = http::head_length(bytes);
  if (!length.ok() || !*length) return 0;
  require(**length <= http::kMaxHeadBytes);
  (void)http::parse_response_head(bytes.substr(0, **length));
  auto head = http::parse_request_head(bytes.substr(0, **length));
  if (!head.ok()) return 0;
  const auto again = http::parse_request_head(http::write_head(*head));
  require(again.ok() && again->method == head->method && again->target == head->target);
  require(again->fields.all().size() == head->fields.all().size());
  const auto one = http::request_framing(*head);
  const auto two = http::request_framing(*again);
  require(one.ok() == two.ok() && (!one.ok() || (one->kind == two->kind && one->length == two->length)));
  for (const bool slash : {false, true}) {
    const auto target = http::canonical_target(head->target, slash);
    if (!target.ok()) continue;
    const auto fixed = http::canonical_target(target->path, slash);
    require(fixed.ok() && fixed->path == target->path);
    require(target->path.find("/../") == std::string::npos && target->path.find("/./") == std::string::npos);
  }
  // No marker passes where there is no table to resolve it.
  const bool marked = openshell::egress::head_has_marker(*head);
  require(openshell::egress::resolve_head(*head, nullptr, {}, {}).ok() != marked);
  return 0;
}
