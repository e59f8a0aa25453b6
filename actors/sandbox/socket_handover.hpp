// The runtime's end of the connection over which relay sockets go to the supervisor (isolation/boundary/socket_passing.hpp).
#pragma once

#include <absl/status/status.h>

#include <mutex>
#include <string_view>

#include "isolation/file_descriptor.hpp"

namespace openshell::sandbox {

/// Thread-safe; never blocks. One connection at a time: the newest, since a supervisor makes another only when its last one broke.
class SocketHandover {
 public:
  /// `connection`: authenticated, its TLS handshake over.
  void adopt(isolation::FileDescriptor connection);
  /// Gives the supervisor a duplicate of `socket`. UNAVAILABLE: there is no connection, or it does not take it.
  absl::Status pass(std::string_view ticket, int socket);

 private:
  std::mutex mutex_;
  isolation::FileDescriptor connection_;
};

}  // namespace openshell::sandbox
