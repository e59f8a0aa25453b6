// Requests of clients that speak to a proxy: CONNECT (RFC 9110 9.3.6) and the absolute form (RFC 9112 3.2.2). Pure functions over bytes.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "messages/values.hpp"

namespace openshell::egress::http {

inline constexpr std::size_t kMaxProxyHeadBytes = 8192;  ///< the empty line included; more is answered 431

struct ProxyRequest {
  enum class Form : std::uint8_t {
    kConnect,      ///< a tunnel to host and port
    kForward,      ///< one request for host and port, over plain HTTP
    kHttpsUrl,     ///< an absolute form that has to be a tunnel
    kOtherScheme,  ///< an absolute form of a scheme that is not carried
  };
  Form form = Form::kConnect;
  std::string method;
  std::string host;  ///< lower-case name, or address literal as RFC 5952 writes it, without brackets
  Port port;
  /// kForward: the request in origin form as the destination is to get it, head only: one Host made of the target, no field that is meant
  /// for a proxy, `Connection: close` (with `Upgrade` where it asks for one), `Via`. Its path and query are as sent. `Connection` is
  /// for this hop: what upstream gets of it the relay decides.
  std::string head;
};

/// `head` ends with its empty line (`head_length`). INVALID_ARGUMENT: answered 400 without a body.
absl::StatusOr<ProxyRequest> parse_proxy_request(std::string_view head);

}  // namespace openshell::egress::http
