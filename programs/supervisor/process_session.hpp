// A process in the sandbox that one client of this supervisor owns: opened, fed, read, resized, signalled, ended.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isolation/boundary/control.hpp"
#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/process_output.hpp"

namespace openshell::supervisor {

struct TerminalSize {
  std::uint32_t columns = 80;
  std::uint32_t rows = 24;
};
/// As a client said it: 0 in either is the default of 80x24 (never a terminal of 1x1), more than 65,535 is 65,535.
TerminalSize usable_size(std::uint32_t columns, std::uint32_t rows);

/// The environment that gives a process its terminal. COLUMNS and LINES are the size from its first instruction on: the runtime takes them
/// for the terminal and does not pass them on.
std::vector<std::pair<std::string, std::string>> terminal_environment(const std::string& term, TerminalSize size);

struct ProcessRequest {
  std::optional<std::string> command;  ///< for the image's shell; nullopt: a shell that reads its stdin (`-i` with a terminal)
  bool login = true;                   ///< `-lc` or `-c`
  struct Terminal {
    std::string term = "xterm-256color";  ///< becomes TERM
    TerminalSize size;
  };
  std::optional<Terminal> terminal;           ///< a controlling terminal; without it three pipes
  std::optional<std::string> runtime_helper;  ///< "sftp", instead of a command; no terminal
};

/// Why the runtime starts no process, in the terms of those who asked for one. InvalidArgument: it takes no such request; NotFound: there
/// is no such program or shell, a shell would say 127; PermissionDenied: it can not be executed, 126; ResourceExhausted: a limit is
/// reached; Unavailable: it is ending, or asks to try again.
absl::Status exec_refusal(const boundary::Error& error);

/// An exec of the boundary. Whoever holds the session owns the process: letting go of the last reference before the exit was read ends its
/// whole tree (SIGKILL, children that left its group or session included).
///
/// Any thread. Completions run once, on any thread, also inside the call; they may call back in. One read and one write outstanding.
class ProcessSession {
 public:
  using Ready = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<ProcessSession>>)>;
  using ReadDone = absl::AnyInvocable<void(absl::StatusOr<ProcessOutput>)>;
  using WriteDone = absl::AnyInvocable<void(absl::Status)>;

  /// Starts it. NotFound: no shell or no such program (a shell would say 127). PermissionDenied: it may not be executed, or its directory
  /// not be entered (126). ResourceExhausted: too many processes are retained. Unavailable: frozen, ending, or the link is lost.
  static void open(std::shared_ptr<BoundaryClient> boundary, ProcessRequest request, Ready done);
  ~ProcessSession();

  [[nodiscard]] bool has_terminal() const;

  /// The next output, or the exit. Nothing is read from the process before it is asked for: a slow reader slows the process, nothing is
  /// dropped. After the exit OutOfRange; Unavailable if the link was lost (the process is then in the boundary's hands).
  void read(ReadDone done);
  /// Standard input, 1..65,536 bytes; done when the sandbox took them. Bytes for a process that reads no more are thrown away: OK.
  void write(std::string bytes, WriteDone done);
  /// Ends standard input behind what was written. Nothing with a terminal (no Ctrl-D is typed).
  void close_input();
  /// The terminal gets the size, its foreground group SIGWINCH. Without a terminal nothing.
  void resize(std::uint32_t columns, std::uint32_t rows);
  /// To the process group. Nothing after the exit.
  void signal(boundary::ProcessSignal signal);
  /// Ends the whole tree; the exit is still read. Nothing after the exit.
  void terminate();

 private:
  struct State;
  explicit ProcessSession(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

}  // namespace openshell::supervisor
