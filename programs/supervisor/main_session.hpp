// The canonical main process, shared by whoever attaches to it: one stream of the boundary on one side, any number of clients on the
// other. The runtime holds the authoritative log; this is its copy for clients. [R-101, R-82, section "main session multiplexer"]
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "isolation/boundary/control.hpp"
#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/process_output.hpp"
#include "programs/supervisor/process_session.hpp"
#include "programs/supervisor/timer_thread.hpp"

namespace openshell::supervisor {

class MainAttachment;

/// Reads main from its first byte on, keeps the newest 1 MiB, and lets clients follow. One input owner at a time. Any thread.
///
/// Back-pressure: a client that is or was the input owner, or that was declared, is never overrun while it reads: the process waits for it.
/// One that reads nothing for `stalled` is overrun and told so. Viewers never slow the process.
///
/// Exit: behind all output, and only when the gateway has acknowledged it (`acknowledged`). Output and exit stay here for later clients;
/// what a declared attachment changes is that the end of the sandbox waits for it (`drain`).
class MainSession {
 public:
  struct Limits {
    std::size_t retained_bytes = 1'048'576;
    std::size_t input_chunks = 64;                  ///< of the owner, not yet taken by the process
    std::chrono::milliseconds input_wait{1'000};    ///< for room in that queue
    std::chrono::milliseconds stalled{30'000};      ///< a lagging owner that reads nothing for so long is overrun
    std::chrono::milliseconds awaited{30'000};      ///< a declared attachment holds the output, or after the exit the end, for so long
    std::chrono::milliseconds draining{30'000};     ///< active attachments have so long to take what is left after the exit
    std::chrono::milliseconds reattach_pause{100};  ///< between attempts to get main's stream back
  };

  /// `declared`: one attachment was announced when the sandbox was created.
  static std::shared_ptr<MainSession> make(std::shared_ptr<BoundaryClient> boundary, std::shared_ptr<TimerThread> timers, bool terminal,
                                           bool declared, Limits limits);
  ~MainSession();

  /// Main runs under this id: attaches. Once.
  void started(std::string process_id);
  /// Its normalised code, as `wait` said it; output may still come.
  void exited(int code);
  /// The gateway took the report of the exit: attachments get it now.
  void acknowledged();
  /// Runs `done` once, when no attachment is active and none is awaited; at once without any. Bounded by `awaited` and `draining`.
  void drain(std::function<void()> done);
  /// No main ever, or no more: attachments fail with this reason.
  void close(const std::string& reason);

  /// A follower from the oldest retained output on, also after the exit. FailedPrecondition with the reason: main never ran, or is lost.
  absl::StatusOr<std::shared_ptr<MainAttachment>> attach();

 private:
  friend class MainAttachment;
  class Impl;
  explicit MainSession(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

/// One client of main. Letting go of it detaches: lease and place are given back, main goes on. Any thread; one read and one write
/// outstanding, whose completions run once, on any thread, also inside the call.
class MainAttachment {
 public:
  using ReadDone = absl::AnyInvocable<void(absl::StatusOr<ProcessOutput>)>;
  using WriteDone = absl::AnyInvocable<void(absl::Status)>;

  ~MainAttachment();
  MainAttachment(const MainAttachment&) = delete;
  MainAttachment& operator=(const MainAttachment&) = delete;

  /// The next output; the exit last. DataLoss "fell behind by <n> output chunks" for a follower that was overrun: it can only end.
  /// OutOfRange after the exit, Cancelled after `detach`, Unavailable when main was lost with its boundary.
  void read(ReadDone done);

  /// Takes the input lease. FailedPrecondition "canonical main process already has an input owner". Idempotent for the owner.
  absl::Status acquire_input();
  void release_input();
  [[nodiscard]] bool owns_input() const;
  /// Of the owner. ResourceExhausted "canonical stdin buffer is full" when main took nothing for a second and 64 chunks wait: close the
  /// attachment. FailedPrecondition without the lease. Main's stdin is never closed from here.
  void write(std::string bytes, WriteDone done);

  /// As ProcessSession. Any attachment may resize.
  void resize(std::uint32_t columns, std::uint32_t rows);
  void signal(boundary::ProcessSignal signal);

  /// Ends this attachment; an outstanding read gets Cancelled. Idempotent.
  void detach();

 private:
  friend class MainSession;
  MainAttachment(std::shared_ptr<MainSession::Impl> session, std::uint64_t number);
  const std::shared_ptr<MainSession::Impl> session_;
  const std::uint64_t number_;
};

}  // namespace openshell::supervisor
