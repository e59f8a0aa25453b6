#include "programs/supervisor/readiness.hpp"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

namespace openshell::supervisor {
namespace {

constexpr int kBacklog = 16;
constexpr std::chrono::milliseconds kExhaustedPause{100};

std::optional<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

std::unique_ptr<ReadinessSocket> ReadinessSocket::open(const std::string& path) {
  const auto address = address_of(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (address) ::unlink(path.c_str());
  if (!address || fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      ::listen(fd, kBacklog) != 0) {
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
  const auto address = address_of(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool ready = address && fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0;
  if (fd >= 0) ::close(fd);
  return ready;
}

}  // namespace openshell::supervisor
