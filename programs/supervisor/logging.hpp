#pragma once

#include <spdlog/common.h>

#include <memory>
#include <string>
#include <vector>

#include "actors/supervisor/log_queue.hpp"
#include "egress/events.hpp"

namespace openshell::supervisor {

struct LoggingOptions {
  std::string console_level = "warn";  ///< trace, debug, info, warn, error
  std::string log_dir;                 ///< empty: no file
  std::string push_level = "info";     ///< least level of what goes to the gateway
};

/// The process's one log: standard error at its level, `<log_dir>/openshell.<date>.log` at info, and the queue of LogPush. Where the file
/// cannot be opened the log goes to standard error only, with one warning.
void start_logging(const LoggingOptions& options, std::shared_ptr<LogQueue> queue);

/// Writes events of the data plane in their order: a shorthand line each into the file, on standard error and to the gateway. A denied
/// event is pushed at once and carries its `denial_id`. [LOG rows]
void log_events(const std::vector<egress::ActivityEvent>& events);

/// The line as it stands in the file, without its end.
[[nodiscard]] std::string file_line(const egress::ActivityEvent& event);

/// `NET:OPEN [MED] DENIED /usr/bin/wget(71) -> mirror.test:443 [policy:- engine:opa] [reason:no matching policy]`
[[nodiscard]] std::string shorthand(const egress::ActivityEvent& event);

}  // namespace openshell::supervisor
