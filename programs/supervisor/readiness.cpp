#include "programs/supervisor/readiness.hpp"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "isolation/unix_address.hpp"

namespace openshell::supervisor {
namespace {

constexpr int kBacklog = 16;
constexpr std::chrono::milliseconds kExhaustedPause{100};

}  // namespace

std::unique_ptr<ReadinessSocket> ReadinessSocket::open(const std::string& path) {
  const auto address = isolation::unix_address(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (address.ok()) ::unlink(path.c_str());
  if (!address.ok() || fd < 0 || ::bind(fd, address->get(), address->length) != 0 || ::listen(fd, kBacklog) != 0) {
    spdlog::error("the readiness socket '{}' cannot be made: {}", path, std::strerror(errno));
    if (fd >= 0) ::close(fd);
    return nullptr;
  }
  return std::unique_ptr<ReadinessSocket>{new ReadinessSocket{path, fd}};
}

ReadinessSocket::ReadinessSocket(std::string path, int fd) : path_{std::move(path)}, fd_{fd} {
  thread_ = std::thread{[fd] {
    while (true) {
      const int peer = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer >= 0) {
        ::close(peer);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        std::this_thread::sleep_for(kExhaustedPause);  // what is missing comes back; the question waits in the backlog
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;  // shut down
      }
    }
  }};
}

ReadinessSocket::~ReadinessSocket() {
  ::unlink(path_.c_str());
  ::shutdown(fd_, SHUT_RDWR);
  thread_.join();
  ::close(fd_);
}

bool is_ready(const std::string& path) {
  const auto address = isolation::unix_address(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool ready = address.ok() && fd >= 0 && ::connect(fd, address->get(), address->length) == 0;
  if (fd >= 0) ::close(fd);
  return ready;
}

}  // namespace openshell::supervisor
