#pragma once

#include <caf/stateful_actor.hpp>

#include <chrono>
#include <memory>

#include "actors/introspection/reporter.hpp"
#include "actors/supervisor/log_queue.hpp"
#include "actors/supervisor/ports.hpp"

namespace openshell::supervisor {

struct LogPushOptions {
  std::shared_ptr<LogQueue> queue;
  std::shared_ptr<LogTransport> transport;
  std::size_t batch_lines = 50;
  std::size_t batch_bytes = 262'144;  ///< of text; the encoded request stays below the gateway's 512 KiB
  std::chrono::milliseconds batch_delay{500};
  std::chrono::milliseconds first_backoff{1'000};
  std::chrono::milliseconds longest_backoff{30'000};
  std::chrono::milliseconds healthy{10'000};  ///< a stream that lasted so long resets the back-off
};

struct LogPushState {
  Reporter reporter;
  bool connected = false;
  bool sending = false;
  bool waiting = false;   // a timer runs
  bool disabled = false;  // the gateway does not know this supervisor: for the rest of the process
  unsigned failures = 0;
  std::chrono::steady_clock::time_point connected_at;
  std::uint64_t sent = 0;
  std::uint64_t oversized = 0;
  caf::typed_response_promise<void> flush;
  bool flushing = false;
  bool finishing = false;  // the stream was half-closed; its end ends the flush
  inline static const char* name = "log_push";
};

/// It logs nothing itself: what it said would come back to it.
LogPush::behavior_type log_push(LogPush::stateful_pointer<LogPushState> self, LogPushOptions options, Reporter reporter);

}  // namespace openshell::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(openshell::supervisor::LogPushOptions)
