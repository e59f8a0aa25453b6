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
  // Whatever is resolved leaves no marker and no other message; what is refused leaves the head as it was.
  static const auto table = [] {
    openshell::egress::ProviderEnvironment environment;
    environment.revision = 41;
    environment.values.emplace("KEY", openshell::Secret{"a secret%/"});
    environment.bindings["KEY"] = {{{"h.test", 443, ""}}, "id", "", {"X-Key", "k", "/bot{credential}/**"}};
    return openshell::egress::CredentialLedger{}.prepare(environment)->table;
  }();
  auto resolved = *head;
  if (const auto target = http::canonical_target(head->target, false); target.ok()) resolved.target = target->str();
  const auto before = http::write_head(resolved);
  const auto used = openshell::egress::resolve_head(resolved, table.get(), {"h.test", openshell::Port{443}, "/", false}, {});
  require(used.ok() ? !openshell::egress::head_has_marker(resolved) : http::write_head(resolved) == before);
  if (used.ok())
    require(http::parse_request_head(http::write_head(resolved)).ok() || http::write_head(resolved).size() > http::kMaxHeadBytes);
  // No marker passes where there is no table to resolve it.
  const bool marked = openshell::egress::head_has_marker(*head);
  require(openshell::egress::resolve_head(*head, nullptr, {}, {}).ok() != marked);
  return 0;
}
