// The broker's end of a seccomp notification listener. seccomp_unotify(2).
#pragma once

#include <linux/seccomp.h>

#include <cstdint>

#include "isolation/file_descriptor.hpp"

namespace openshell::isolation {

/// As an answer: EINTR, or the call again, as the pending signal's SA_RESTART says. Only with a signal pending; without one the program
/// would see the number.
constexpr int kErestartsys = 512;

/// Thread-safe: every call is one ioctl.
class NotifyChannel {
 public:
  explicit NotifyChannel(FileDescriptor listener);

  [[nodiscard]] int fd() const noexcept { return listener_.get(); }
  /// Takes one notification; blocks when none is queued, so poll first. 0 or an errno value (ENOENT: its task died; EINTR).
  [[nodiscard]] int receive(seccomp_notif& notification) const noexcept;
  /// The task still waits in this notification.
  [[nodiscard]] bool valid(std::uint64_t id) const noexcept;
  /// Answers; `error` is a positive errno value (or kErestartsys), 0 for success. False: the task is gone.
  bool answer(std::uint64_t id, int error, std::int64_t value = 0) const noexcept;
  /// Lets the kernel perform the call.
  bool let_through(std::uint64_t id) const noexcept;
  /// Puts `fd` at the task's lowest free number and answers with it, in one step. 0 or an errno value; after EMFILE the notification is
  /// still open.
  [[nodiscard]] int answer_with_descriptor(std::uint64_t id, int fd, bool close_on_exec) const noexcept;

 private:
  FileDescriptor listener_;
};

}  // namespace openshell::isolation
