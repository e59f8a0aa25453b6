// The newest log lines and platform events of one sandbox, in one order, under cursors that compare byte by byte. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/times.hpp"
#include "openshell.pb.h"

namespace openshell::gateway {

inline constexpr std::size_t kMaxEvents = 2000;  ///< kept per sandbox
inline constexpr int kMaxLinesPerBatch = 100;    ///< of a pushed batch; the rest is dropped
inline constexpr std::size_t kMaxLineFields = 32;
inline constexpr std::size_t kMaxFieldKey = 64;  ///< bytes
inline constexpr std::size_t kMaxFieldValue = 1024;
inline constexpr std::uint32_t kDefaultLogTail = 200;  ///< of a watch

/// Which lines somebody wants to see.
struct LineFilter {
  std::optional<Millis> since;
  std::vector<std::string> sources;  ///< empty: all. A line without source counts as `gateway`.
  std::string min_level;             ///< empty: all. A line of unknown level always passes.
  [[nodiscard]] bool passes(const openshell::v1::SandboxLogLine& line) const;
};

class EventLog {
 public:
  explicit EventLog(Millis epoch) : epoch_{epoch} {}

  using Event = openshell::v1::SandboxStreamEvent;

  /// Stamps and keeps an event; fields beyond the bounds are cut.
  const Event& add(openshell::v1::SandboxLogLine line);
  const Event& add(const openshell::v1::PlatformEvent& event);

  [[nodiscard]] const std::deque<Event>& all() const { return events_; }
  /// The newest `count` that `wanted` accepts, oldest first.
  [[nodiscard]] std::vector<Event> tail(std::size_t count, const std::function<bool(const Event&)>& wanted) const;
  /// Everything after a cursor. INVALID_ARGUMENT for one that is none, OUT_OF_RANGE for one of an earlier start or of an event that is
  /// gone.
  [[nodiscard]] absl::StatusOr<std::vector<Event>> after(const std::string& cursor, const std::function<bool(const Event&)>& wanted) const;

 private:
  const Event& keep(Event event);
  Millis epoch_;
  std::uint64_t next_ = 1;
  std::deque<Event> events_;
};

/// Cuts what a supervisor sent to the bounds above and puts the gateway's own words where they belong.
openshell::v1::SandboxLogLine clean_line(const openshell::v1::SandboxLogLine& line, const std::string& sandbox_id);

}  // namespace openshell::gateway
