#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "egress/stream.hpp"
#include "programs/supervisor/decision_log.hpp"
#include "programs/supervisor/timer_thread.hpp"

namespace openshell::supervisor {

/// What a client asks for, in its one line.
struct DecisionRequest {
  std::optional<DecisionLog::WallTime> since;
  std::size_t limit = 10'000;
};
/// `{"since"?: RFC 3339, "limit"?: n}`. INVALID_ARGUMENT.
absl::StatusOr<DecisionRequest> parse_decision_request(std::string_view line);

/// Gives the decision records over one relay of the gateway: reads one line, writes the records and a last line
/// `{"end":true,"dropped":n}`, and ends. A stream that ends otherwise is incomplete, and whoever reads it knows.
class DecisionRelay : public std::enable_shared_from_this<DecisionRelay> {
 public:
  static constexpr std::size_t kMaxRequestBytes = 4'096;
  static constexpr std::size_t kChunk = 32'768;      ///< bytes of one write
  static constexpr std::chrono::seconds kLinger{1};  ///< from the end of both directions to the end of the relay
  static constexpr std::chrono::seconds kWait{30};   ///< for the request, and for one write to be taken

  DecisionRelay(std::shared_ptr<egress::ByteStream> relay, std::shared_ptr<const DecisionLog> log, std::shared_ptr<TimerThread> timers,
                std::function<void()> ended)
      : relay_{std::move(relay)}, log_{std::move(log)}, timers_{std::move(timers)}, ended_{std::move(ended)} {}

  void run();
  /// From any thread.
  void abort();

 private:
  void read();
  void answer(std::string_view line);
  void write();
  void drain();
  void finish();
  void watch();

  const std::shared_ptr<egress::ByteStream> relay_;
  const std::shared_ptr<const DecisionLog> log_;
  const std::shared_ptr<TimerThread> timers_;
  std::string request_;
  DecisionLog::Snapshot records_;
  std::size_t next_ = 0;  // record that is written next
  bool last_ = false;     // the last line is on its way
  std::mutex mutex_;
  std::function<void()> ended_;
  std::uint64_t moves_ = 0;
};

}  // namespace openshell::supervisor
