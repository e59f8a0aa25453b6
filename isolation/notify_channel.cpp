#include "isolation/notify_channel.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <utility>

#include "isolation/kernel_abi.hpp"

namespace openshell::isolation {

NotifyChannel::NotifyChannel(FileDescriptor listener) : listener_{std::move(listener)} {
  // 6.6+: the waker hands its processor to us; elsewhere the call fails and nothing is lost.
  ::ioctl(listener_.get(), kernel::kSeccompNotifSetFlags, kernel::kSeccompFdSyncWakeUp);
}

int NotifyChannel::receive(seccomp_notif& notification) const noexcept {
  notification = {};
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &notification) == 0 ? 0 : errno;
}

bool NotifyChannel::valid(std::uint64_t id) const noexcept { return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0; }

bool NotifyChannel::answer(std::uint64_t id, int error, std::int64_t value) const noexcept {
  seccomp_notif_resp response{};
  response.id = id;
  response.error = -error;
  response.val = error == 0 ? value : 0;
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &response) == 0;
}

bool NotifyChannel::let_through(std::uint64_t id) const noexcept {
  seccomp_notif_resp response{};
  response.id = id;
  response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &response) == 0;
}

int NotifyChannel::answer_with_descriptor(std::uint64_t id, int fd, bool close_on_exec) const noexcept {
  seccomp_notif_addfd request{};
  request.id = id;
  request.flags = SECCOMP_ADDFD_FLAG_SEND;
  request.srcfd = static_cast<__u32>(fd);
  request.newfd_flags = close_on_exec ? O_CLOEXEC : 0;
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_ADDFD, &request) >= 0 ? 0 : errno;
}

}  // namespace openshell::isolation
