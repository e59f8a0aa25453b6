// The caller's own terminal while a remote one stands behind it. termios(3), tty_ioctl(4), signal-safety(7).
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <variant>

#include "cli/window_size.hpp"

namespace openshell::cli {

/// What happened at the caller's side of a remote terminal.
struct Typed {
  std::string bytes;
};
struct Hangup {};  ///< the terminal is gone
using TerminalEvent = std::variant<Typed, WindowSize, Hangup>;

/// Puts the terminal of stdin into raw mode, so that every key (Ctrl-C, Ctrl-\, Ctrl-Z) goes to the remote side, and watches its size.
///
/// The mode from before is restored on every way out: the destructor, exit(), SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGABRT (after which the
/// signal takes its usual effect), and while the process is stopped by SIGTSTP. SIGKILL cannot be helped. One in a process.
class RawTerminal {
 public:
  /// FailedPrecondition when stdin is no terminal.
  static absl::StatusOr<std::unique_ptr<RawTerminal>> enter();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  /// Waits for keys or another size. On one thread at a time, which may be left behind in it when the terminal is restored.
  static absl::StatusOr<TerminalEvent> next();

 private:
  RawTerminal() = default;
};

}  // namespace openshell::cli
