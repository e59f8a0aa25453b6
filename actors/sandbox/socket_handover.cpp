#include "actors/sandbox/socket_handover.hpp"

#include <utility>

#include "isolation/boundary/socket_passing.hpp"

namespace openshell::sandbox {

void SocketHandover::adopt(isolation::FileDescriptor connection) {
  const std::lock_guard lock{mutex_};
  connection_ = std::move(connection);
}

absl::Status SocketHandover::pass(std::string_view ticket, int socket) {
  const std::lock_guard lock{mutex_};
  if (!connection_.valid()) return absl::UnavailableError("there is no hand-over connection");
  return boundary::pass_socket(connection_.get(), ticket, socket);
}

}  // namespace openshell::sandbox
