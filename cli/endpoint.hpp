// The address of a gateway or of a service, as users, registrations and gateways write it: SCHEME://HOST[:PORT][/PATH] (RFC 3986 3).
#pragma once

#include <string>
#include <string_view>

namespace openshell::cli {

/// The parts as written, unchecked: who connects says what is wrong with them.
struct Endpoint {
  std::string scheme;  ///< empty: the text names none
  std::string host;    ///< without the brackets of an IPv6 literal
  std::string port;    ///< the scheme's (443 for https, else 80) where none is written
  bool names_port = false;
  std::string path;  ///< from the first '/' on; empty: none

  /// `host:port`, an IPv6 host in brackets: what gRPC dials.
  [[nodiscard]] std::string authority() const;
  /// `scheme://host:port`: equal for two endpoints that are reached in the same way.
  [[nodiscard]] std::string origin() const;
};

Endpoint split_endpoint(std::string_view url);

/// `[::1]` -> `::1`; everything else stays.
std::string without_brackets(std::string_view host);
/// `::1` -> `[::1]`: a host before a colon and a port.
std::string bracketed(std::string_view host);
/// 127.0.0.0/8, ::1 and `localhost`.
bool is_loopback(std::string_view host);

}  // namespace openshell::cli
