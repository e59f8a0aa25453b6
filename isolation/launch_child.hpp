// The child's side of a launch: everything between fork and exec, in the one order that leaves nothing half-restricted. Async-signal-safe,
// no allocation, no notified system call.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "isolation/seccomp_filter.hpp"

namespace openshell::isolation {

/// Where a launch failed; written to the error pipe together with an errno value.
enum class LaunchStep : int {
  Session,
  Terminal,
  StandardStreams,
  Signals,
  WorkingDirectory,
  Limits,
  Capabilities,
  NoNewPrivileges,
  Landlock,
  Filters,
  Execute
};
const char* to_string(LaunchStep step) noexcept;

struct LaunchFailure {
  LaunchStep step = LaunchStep::Execute;
  int error = 0;
};

/// Everything the child needs, prepared by the parent; plain pointers into memory that the fork copies.
struct ChildPlan {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  int standard_streams[3] = {-1, -1, -1};
  bool terminal = false;  ///< standard_streams[0] is the slave side
  int working_directory = -1;
  int ruleset = -1;  ///< -1: the baseline alone
  int error_pipe = -1;
  std::uint64_t job_tag = 0;
  std::uint64_t max_processes = 0;  ///< 0: inherited
  std::uint64_t max_open_files = 0;
  const FilterProgram* self_protection = nullptr;
  const FilterProgram* workload = nullptr;
  int (*probe)(void*) = nullptr;  ///< instead of a program
  void* probe_argument = nullptr;
};

/// Never returns.
[[noreturn]] void run_child(const ChildPlan& plan) noexcept;

}  // namespace openshell::isolation
