// Connections towards the network: to addresses that were checked before, in their order, and to nothing else.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <vector>

#include "egress/io/streams.hpp"
#include "egress/ip_address.hpp"
#include "messages/values.hpp"

namespace openshell::egress {

struct Dialed {
  std::shared_ptr<ByteStream> stream;
  IpAddress address;
};

/// Lets somebody else end a dial that is under way.
class DialHandle {
 public:
  void cancel();

 private:
  friend Task<absl::StatusOr<Dialed>> dial(std::shared_ptr<asio::io_context> io, std::vector<IpAddress> addresses, Port port,
                                           std::chrono::milliseconds timeout, std::shared_ptr<DialHandle> handle);
  struct Attempt;
  std::weak_ptr<Attempt> attempt_;
  bool cancelled_ = false;
};

/// TCP with TCP_NODELAY and keep-alive (30 s idle, 3 probes 10 s apart). `timeout` is per address. UNAVAILABLE: none answered. Where no
/// descriptor, buffer or local port is left, it is tried again, with back-off, for `timeout` at most.
Task<absl::StatusOr<Dialed>> dial(std::shared_ptr<asio::io_context> io, std::vector<IpAddress> addresses, Port port,
                                  std::chrono::milliseconds timeout, std::shared_ptr<DialHandle> handle);

}  // namespace openshell::egress
