// The monitor: one small process per sandbox that outlives the gateway. It is the parent of PID 1 and of the supervisor, so that their exit
// statuses are never lost, and helps the driver during the launch. After the launch it holds no capability.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace openshell::drivers::process {

/// How a process ended.
struct ExitStatus {
  std::int32_t pid = 0;
  std::int32_t code = 0;    ///< 0..255, where it was not a signal.
  std::int32_t signal = 0;  ///< 0: none.
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

/// Content of `exit.json`: `{"generation":"...","init":{"pid":1,"code":0,"signal":0},"supervisor":{...}}`, a part that still runs left out.
struct ExitRecord {
  std::string generation;
  std::optional<ExitStatus> init, supervisor;
  friend bool operator==(const ExitRecord&, const ExitRecord&) = default;
};
std::string serialise(const ExitRecord& record);
absl::StatusOr<ExitRecord> parse_exit_record(const std::string& json);

inline constexpr std::size_t kMaxOutputLogBytes =
    4 * 1024 * 1024;  ///< Of sandbox.log and of supervisor.log of one generation; the rest is read and dropped.

/// Serves the driver at `control` and, after the gate has opened, waits for both processes. Returns the program's exit code.
int run_monitor(int control);

}  // namespace openshell::drivers::process
