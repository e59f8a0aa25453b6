#pragma once

#include <string>

namespace openshell::supervisor {

/// The next thing a process of the workload says. `exit` is the last, behind all output.
struct ProcessOutput {
  enum class Kind { standard_output, standard_error, exit };
  Kind kind = Kind::standard_output;
  std::string bytes;  ///< 1..65,536 of output; none with `exit`
  int code = 0;       ///< with `exit`: 0..255, 128 + n for signal n
  friend bool operator==(const ProcessOutput&, const ProcessOutput&) = default;
};

}  // namespace openshell::supervisor
