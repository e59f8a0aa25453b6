#include "cli/write_all.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace openshell::cli {

absl::Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = ::write(fd, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      (void)::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return absl::ErrnoToStatus(errno, "cannot write");
    }
  }
  return absl::OkStatus();
}

}  // namespace openshell::cli
