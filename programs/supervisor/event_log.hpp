// Between the data plane and the log: events are formatted and written on a thread of their own, many at a time.
#pragma once

#include <absl/functional/any_invocable.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "egress/events.hpp"

namespace openshell::supervisor {

/// Nothing is lost and nothing grows: where kMaxWaiting events wait, whoever brings the next one waits until they were taken. What a
/// process leaves behind that is killed lacks the last few milliseconds. Any thread.
class EventLog {
 public:
  using Write = absl::AnyInvocable<void(const std::vector<egress::ActivityEvent>&)>;

  static constexpr std::size_t kMaxWaiting = 4'096;      ///< events
  static constexpr std::chrono::milliseconds kPause{2};  ///< between two writes, so that a busy data plane wakes nobody for each event

  /// `write` takes them in their order, one call at a time, on the log's thread; behind `stop` on the caller's.
  explicit EventLog(Write write);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// A denied event is written at once, with what waits.
  void push(egress::ActivityEvent event);
  /// Writes what waits and ends the thread; what comes later is written within its push. Idempotent.
  void stop();

 private:
  void run();

  Write write_;
  std::mutex writing_;  // around write_
  std::mutex mutex_;
  std::condition_variable wake_, room_;
  std::vector<egress::ActivityEvent> waiting_;
  bool asleep_ = true;  // until somebody pushes
  bool urgent_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace openshell::supervisor
