// One process of the workload as the channel sees it: its pipes, what it wrote lately, how it ended. R-101, section "exec registry".
//
// Output becomes a sequence of events of at most 16,379 bytes each (one process frame with it fills one chunk). At most one attachment
// reads them; while it lags, the pipes are not read and the process waits. Without an attachment the oldest events are dropped beyond 1
// MiB.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/sandbox/call.hpp"
#include "isolation/file_descriptor.hpp"
#include "isolation/launcher.hpp"
#include "isolation/process_tree.hpp"

namespace openshell::sandbox {

class ManagedProcess : public std::enable_shared_from_this<ManagedProcess> {
 public:
  struct Limits {
    std::size_t retained_bytes = 1'048'576;   ///< data of the retained events
    std::size_t undelivered_bytes = 262'144;  ///< what an attachment may lag before the pipes are no longer read
    std::chrono::milliseconds idle{
        2'000};  ///< after the exit: so long without a byte counts as the end of output (a daemon may hold the pipe)
    std::chrono::milliseconds delivery{30'000};  ///< after the exit: output that flows longer ends the attachment without a status
  };

  /// Our ends. With a terminal the master serves both directions and everything is standard output.
  struct Ends {
    isolation::FileDescriptor standard_input, standard_output, standard_error;
    isolation::FileDescriptor terminal;
  };

  /// Nothing is read before `launched`. `io` runs all of it and outlives it.
  static std::shared_ptr<ManagedProcess> create(boost::asio::io_context& io, std::string id, bool main, Ends ends, Limits limits);
  ~ManagedProcess();

  [[nodiscard]] const std::string& id() const;
  [[nodiscard]] bool is_main() const;
  [[nodiscard]] bool has_terminal() const;

  /// The process runs. The thread that launched it; before `exited`.
  void launched(isolation::LaunchedProcess process);
  /// It ended; from the reaper's thread.
  void exited(boundary::ExitStatus status);

  // From any thread:
  [[nodiscard]] std::optional<boundary::ExitStatus> status() const;
  [[nodiscard]] boundary::RetainedOutput retained() const;
  [[nodiscard]] bool attached() const;
  [[nodiscard]] isolation::JobTag job() const;
  [[nodiscard]] pid_t pid() const;

  /// The stream of an attachment, from the oldest retained event on; null while another one is open.
  std::shared_ptr<CallStream> attach();
  /// Sends to the process group of a leader that still runs. False: it has ended.
  bool signal(int number);
  /// No effect without a terminal.
  void resize(std::uint16_t columns, std::uint16_t rows);

 private:
  class Impl;
  class Stream;
  ManagedProcess();
  std::shared_ptr<Impl> impl_;
};

}  // namespace openshell::sandbox
