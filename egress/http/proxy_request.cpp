#include "egress/http/proxy_request.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "egress/http/head.hpp"
#include "egress/ip_address.hpp"

namespace openshell::egress::http {
namespace {

constexpr Port kHttp{80};
constexpr Port kHttps{443};
constexpr std::string_view kVia = "1.1 openshell-sandbox";
constexpr std::array<std::string_view, 4> kForProxies{"proxy-connection", "proxy-authorization", "proxy-authenticate", "keep-alive"};

absl::Status bad(std::string text) { return absl::InvalidArgumentError(std::move(text)); }

struct Lines {
  std::string_view method, target, version;
  std::string others;  // without Host
};

/// The first line in its parts, and the others without Host: what it says is not what decides where a proxy's request goes.
absl::StatusOr<Lines> split(std::string_view head) {
  Lines out;
  const auto end = head.find("\r\n");
  const auto line = head.substr(0, end);
  const auto first = line.find(' '), last = line.rfind(' ');
  if (end == std::string_view::npos || first == std::string_view::npos || first == last) return bad("the request line has not three parts");
  out.method = line.substr(0, first);
  out.target = line.substr(first + 1, last - first - 1);
  out.version = line.substr(last + 1);
  std::size_t hosts = 0;
  for (auto rest = head.substr(end + 2); !rest.empty();) {
    const auto next = rest.find("\r\n");
    if (next == std::string_view::npos) return bad("the head ends inside a line");
    const auto one = rest.substr(0, next + 2);
    rest.remove_prefix(next + 2);
    if (equal_ignoring_case(one.substr(0, one.find(':')), "host")) {
      ++hosts;
    } else {
      out.others += one;
    }
  }
  if (hosts > 1) return bad("the request has several Host fields");
  return out;
}

/// Strict in everything but the target, which is another one here.
absl::StatusOr<RequestHead> parse_with_target(const Lines& lines, std::string_view target, std::string_view host) {
  return parse_request_head(fmt::format("{} {} {}\r\nHost: {}\r\n{}", lines.method, target, lines.version, host, lines.others));
}

std::string canonical_host(const std::string& host) {
  const auto address = IpAddress::parse(host);
  return address.ok() ? address->unmapped().str() : host;
}

absl::StatusOr<ProxyRequest> connect_request(const Lines& lines) {
  const auto authority = parse_authority(lines.target);
  if (!authority.ok()) return authority.status();
  if (!authority->port) return bad("the target of CONNECT has no port");
  if (const auto head = parse_with_target(lines, "/", "proxy"); !head.ok()) return head.status();
  return ProxyRequest{ProxyRequest::Form::kConnect, "CONNECT", canonical_host(authority->host), *authority->port, {}};
}

struct Url {
  std::string scheme;  // lower case
  std::string_view authority;
  std::string target;  // origin form
};

std::optional<Url> split_url(std::string_view text) {
  const auto colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0 || text.find('#') != std::string_view::npos) return std::nullopt;
  Url out;
  out.scheme = text.substr(0, colon);
  std::transform(out.scheme.begin(), out.scheme.end(), out.scheme.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto rest = text.substr(colon + 3);
  const auto end = rest.find_first_of("/?");
  out.authority = rest.substr(0, end);
  if (end == std::string_view::npos) {
    out.target = "/";
  } else {
    out.target = rest[end] == '?' ? "/" + std::string{rest.substr(end)} : std::string{rest.substr(end)};
  }
  return out;
}

void make_forwardable(RequestHead& head) {
  const bool upgrade = head.fields.lists("connection", "upgrade") && head.fields.has("upgrade");
  const std::string protocol{upgrade ? *head.fields.first("upgrade") : std::string_view{}};
  strip_hop_fields(head.fields);
  for (const auto name : kForProxies) head.fields.remove(name);
  head.fields.add("Connection", upgrade ? "close, Upgrade" : "close");
  if (upgrade) head.fields.add("Upgrade", protocol);
  if (!head.fields.has("via")) head.fields.add("Via", std::string{kVia});
}

}  // namespace

absl::StatusOr<ProxyRequest> parse_proxy_request(std::string_view text) {
  const auto lines = split(text);
  if (!lines.ok()) return lines.status();
  if (lines->method == "CONNECT") return connect_request(*lines);
  const auto url = split_url(lines->target);
  if (!url) return bad("the target is no URL");
  const auto authority = parse_authority(url->authority);
  if (!authority.ok()) return authority.status();
  ProxyRequest out;
  out.method = lines->method;
  out.host = canonical_host(authority->host);
  out.port = authority->port.value_or(url->scheme == "https" ? kHttps : kHttp);
  const bool v6 = out.host.find(':') != std::string::npos;
  const auto host = fmt::format("{}{}", v6 ? "[" + out.host + "]" : out.host, out.port == kHttp ? "" : fmt::format(":{}", out.port.value));
  auto head = parse_with_target(*lines, url->target, host);
  if (!head.ok()) return head.status();
  out.form = url->scheme == "http"    ? ProxyRequest::Form::kForward
             : url->scheme == "https" ? ProxyRequest::Form::kHttpsUrl
                                      : ProxyRequest::Form::kOtherScheme;
  make_forwardable(*head);
  out.head = write_head(*head);
  return out;
}

}  // namespace openshell::egress::http
