// One process, held by a pidfd and recognised again by pid, start time and boot id: a number alone may mean another process after a while.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "drivers/process/descriptor.hpp"

namespace openshell::drivers::process {

/// What is written down about a process.
struct ProcessMark {
  std::int32_t pid = 0;
  std::uint64_t start_ticks = 0;  ///< Field 22 of /proc/<pid>/stat.
  friend bool operator==(const ProcessMark&, const ProcessMark&) = default;
};

/// /proc/sys/kernel/random/boot_id, without the newline.
absl::StatusOr<std::string> boot_id();

/// The mark of a live process. NOT_FOUND: there is none.
absl::StatusOr<ProcessMark> mark_of(pid_t pid);

/// A pidfd of the marked process. NOT_FOUND where the pid is free or means another process now.
absl::StatusOr<Descriptor> open_process(const ProcessMark& mark);

/// What each descriptor of a process (`self`, or a number) leads to: the link texts of /proc/<process>/fd, sorted. One entry that begins
/// with `unreadable` where they can not be read.
std::vector<std::string> descriptor_links(const std::string& process);

/// The process behind a pidfd has ended.
bool has_ended(int pidfd);
/// Waits for that. false: `timeout` has passed.
bool wait_ended(int pidfd, std::chrono::milliseconds timeout);
/// Sends a signal; a process that has ended is no error.
absl::Status send_signal(int pidfd, int signal);

}  // namespace openshell::drivers::process
