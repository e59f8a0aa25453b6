// The opening handshake of WebSocket (RFC 6455 section 4), both halves.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "egress/http/head.hpp"

namespace openshell::egress::websocket {

/// An opening handshake, every required field present and well-formed (section 4.2.1).
bool is_upgrade(const http::RequestHead& head);

/// What a request offered, to hold the response against it.
struct Offer {
  std::string accept;                  ///< the value that Sec-WebSocket-Accept must have
  std::vector<std::string> protocols;  ///< subprotocols, as offered
};

/// Of a head that is_upgrade. The head offers no extension any more: messages that are read here are read as they were written.
Offer restrict_offer(http::RequestHead& head);

/// INVALID_ARGUMENT: the 101 is no answer to this offer, and its bytes would be no frames of it.
absl::Status check_accepted(const http::ResponseHead& head, const Offer& offer);

}  // namespace openshell::egress::websocket
