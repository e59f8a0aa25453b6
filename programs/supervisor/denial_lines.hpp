#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "egress/events.hpp"

namespace openshell::supervisor {

/// The newest lines of the log that say that something was denied, for the agent that asks why. Queries are left out of them. They are
/// written when somebody asks: many are denied, few are asked for. Any thread.
class DenialLines {
 public:
  static constexpr std::size_t kMaxLines = 100;
  static constexpr std::size_t kMaxLineBytes = 4'096;

  void push(egress::ActivityEvent event);
  /// Newest first, `count` at most.
  [[nodiscard]] std::vector<std::string> newest(std::size_t count) const;

 private:
  mutable std::mutex mutex_;
  std::deque<egress::ActivityEvent> events_;
};

/// Every `?...` up to a blank or `]` becomes `?[redacted]`; then cut at a character to kMaxLineBytes.
[[nodiscard]] std::string without_queries(std::string_view line);

}  // namespace openshell::supervisor
