// Reads the whole body of a request that is judged by it, before a byte of the request goes upstream.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <string>

#include "egress/http/body.hpp"
#include "egress/http/head.hpp"
#include "egress/relay/relay.hpp"

namespace openshell::egress {

/// The body's data, at most `limit` bytes; chunks are put together, trailers dropped. Answers `Expect: 100-continue` where bytes are still
/// to come. RESOURCE_EXHAUSTED: it is longer. INVALID_ARGUMENT: its chunks are malformed. UNAVAILABLE: the client broke off.
Task<absl::StatusOr<std::string>> read_judged_body(std::shared_ptr<Relay> relay, AsyncStream& client, Reader& from_client,
                                                   const http::RequestHead& head, http::Framing framing, std::size_t limit);

/// The head for upstream of a request whose whole body is at hand.
void declare_length(http::RequestHead& head, std::size_t bytes);

}  // namespace openshell::egress
