#pragma once

#include <string>

namespace openshell::v1 {
class SandboxLogLine;
}

namespace openshell::cli {

/// One line of a sandbox's log as people read it: time, source, level, target, message, fields.
std::string show_log_line(const v1::SandboxLogLine& line);

/// Text that a workload may have chosen, with no control character left that could reach the terminal.
std::string harmless(const std::string& text);

}  // namespace openshell::cli
