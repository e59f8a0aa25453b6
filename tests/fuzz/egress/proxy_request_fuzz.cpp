// Heads of clients that speak to a proxy: a forwarded request has exactly one Host, that of its target, and reads back as it was written.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "egress/http/head.hpp"
#include "egress/http/proxy_request.hpp"
#include "egress/http/target.hpp"

namespace http = openshell::egress::http;

static void require(bool holds) {
  if (!holds) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return 0;
  const auto request = http::parse_proxy_request(bytes.substr(0, end + 4));
  if (!request.ok()) return 0;
  require(!request->host.empty());
  if (request->form == http::ProxyRequest::Form::kConnect) {
    require(request->port.value != 0 && request->head.empty());
    return 0;
  }
  const auto head = http::parse_request_head(request->head);
  require(head.ok() && head->method == request->method && head->target.starts_with('/'));
  require(!http::split_absolute_form(head->target));
  const auto hosts = head->fields.values("host");
  require(hosts.size() == 1);
  const auto authority = http::parse_authority(hosts.front());
  require(authority.ok() && authority->port.value_or(openshell::Port{80}) == request->port);
  for (const auto* gone : {"proxy-authorization", "proxy-connection", "keep-alive"}) require(!head->fields.has(gone));
  return 0;
}
