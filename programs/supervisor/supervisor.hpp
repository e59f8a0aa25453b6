#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "messages/supervisor.hpp"
#include "programs/supervisor/options.hpp"

namespace openshell::supervisor {

// What the main thread waits for.
struct StopSignal {};
struct ActorDied {
  std::string name;
};
struct SessionChanged {
  bool connected = false;
};
struct LinkChanged {
  LinkState state = LinkState::connected;
};
struct MainDelivered {};  ///< nobody waits for output of the ended main process any more
using ProcessEvent = std::variant<StopSignal, ActorDied, SessionChanged, LinkChanged, MainExit, MainDelivered>;

/// Events of the process for its main thread, in order. Any thread pushes.
class EventBox {
 public:
  void push(ProcessEvent event);
  /// Waits for the next; nothing when the time is over.
  std::optional<ProcessEvent> pop(std::optional<std::chrono::steady_clock::time_point> until);
  /// True when the process is to stop; waits up to `delay` for it. The signal stays.
  bool stop_within(std::chrono::milliseconds delay);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ProcessEvent> events_;
  bool stopping_ = false;
};

/// Runs one supervisor from its options to its end. Returns the exit code.
int run_supervisor(const Options& options, EventBox& events);

}  // namespace openshell::supervisor
