// What the first bytes of a connection say, without consuming them. Parser of untrusted bytes; no allocation but the result.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace openshell::api {

constexpr std::size_t kMaxClientHelloBytes = 16 * 1024;

enum class Opening {
  kNeedMore,  ///< not yet enough bytes to tell
  kGrpcTls,   ///< ClientHello whose ALPN list has h2 and no http/1.1: every gRPC library
  kHttpTls,   ///< any other ClientHello: browsers and curl offer both
  kHttp2,     ///< plaintext HTTP/2 preface (RFC 9113 section 3.4)
  kHttp1,     ///< plaintext that begins with an HTTP method
  kUnknown,   ///< anything else, a ClientHello that is malformed or larger than the bound included
};

/// Looks at the bytes that have arrived so far. ClientHellos split over several TLS records are followed (RFC 8446 section 5.1).
Opening classify(std::span<const unsigned char> bytes);

}  // namespace openshell::api
