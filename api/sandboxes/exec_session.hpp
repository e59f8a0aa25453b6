// One exec between a caller and a supervisor: our messages over a claimed relay. Bytes go from stream to stream; nothing here is an
// actor.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actors/gateway/relay_pipe.hpp"

namespace openshell::v1 {
class ExecSandboxEvent;
class ExecSandboxRequest;
}  // namespace openshell::v1

namespace openshell::internal::exec::v1 {
class ToGateway;
class ToSupervisor;
}  // namespace openshell::internal::exec::v1

namespace openshell::api {

inline constexpr std::size_t kMaxExecMessage = 65'536;                          ///< bytes behind one length
inline constexpr std::size_t kMaxExecStart = 524'288;                           ///< of `start`
inline constexpr std::size_t kMaxExecChunk = 32'768;                            ///< of stdin, stdout, stderr
inline constexpr std::size_t kExecWindow = 262'144;                             ///< bytes of stdin on their way to the process
inline constexpr std::size_t kMaxPendingStdin = 4'194'304;                      ///< received from the caller and not taken by the process
inline constexpr std::chrono::seconds kExecLongestTimeout{366LL * 24 * 3'600};  ///< a longer execution_timeout counts as this one
inline constexpr std::chrono::seconds kExecStarted{30};                         ///< until `started` or `failure`
inline constexpr std::chrono::seconds kExecStdinStall{30};                      ///< full of stdin, and the process takes no byte
inline constexpr std::chrono::seconds kExecKilled{5};                           ///< a tree that was killed is gone

/// Thread-safe; lives as long as somebody holds it. All functions of `Caller` are called without concurrency among themselves.
class ExecSession : public std::enable_shared_from_this<ExecSession> {
 public:
  struct Caller {
    /// An event for the caller; `written` when the next may follow, `false` when the caller is gone.
    std::function<void(const openshell::v1::ExecSandboxEvent&, std::function<void(bool)> written)> send;
    /// The end, once.
    std::function<void(absl::Status)> finish;
    /// Runs something later.
    std::function<void(std::chrono::milliseconds, std::function<void()>)> after;
    /// `execution_timeout` passed: the kill is sent, and the end that the caller gets is not the process's own. May be empty.
    std::function<void()> timed_out;
  };

  ExecSession(std::shared_ptr<gateway::RelayEnd> relay, Caller caller);

  /// Sends `start`. `command` is assembled; `interactive` leaves stdin open.
  void start(const openshell::v1::ExecSandboxRequest& request, const std::string& command, const std::string& exec_id, bool interactive);
  /// Stdin of an interactive call; `more` when the caller may send further bytes.
  void stdin_bytes(std::string bytes, std::function<void()> more);
  void stdin_end();
  void resize(std::uint32_t cols, std::uint32_t rows);
  /// The caller is gone: the whole tree ends.
  void cancel();

 private:
  void send_message(const openshell::internal::exec::v1::ToSupervisor& message);
  void push_stdin();
  void read_relay();
  void relay_ended();
  void handle_messages();
  bool handle(const openshell::internal::exec::v1::ToGateway& message);  // false: a write is under way, the rest waits
  void emit(const openshell::v1::ExecSandboxEvent& event);
  void exited(std::int64_t code);
  void end(absl::Status status);
  void watch_stall();
  void timed_out();

  std::recursive_mutex mutex_;  // callbacks of relay and stream may come back on the same thread
  std::shared_ptr<gateway::RelayEnd> relay_;
  Caller caller_;
  std::string input_;          // bytes of the relay that are no whole message yet
  std::string pending_stdin_;  // not sent to the supervisor
  std::size_t credit_ = kExecWindow;
  std::uint64_t taken_ = 0;     // bytes of stdin that the process took, for the stall
  std::function<void()> more_;  // the caller's next read
  bool stdin_done_ = false;     // the caller sent the end
  bool stdin_end_sent_ = false;
  bool started_ = false;
  bool emitting_ = false;
  bool stalled_check_ = false;
  bool killed_ = false;  // by execution_timeout
  bool tty_ = false;
  bool over_ = false;
};

}  // namespace openshell::api
