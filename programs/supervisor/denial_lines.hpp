#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::supervisor {

/// The newest lines of the log that say that something was denied, for the agent that asks why. Queries are left out of them. Any thread.
class DenialLines {
 public:
  static constexpr std::size_t kMaxLines = 100;
  static constexpr std::size_t kMaxLineBytes = 4'096;

  void push(std::string line);
  /// Newest first, `count` at most.
  [[nodiscard]] std::vector<std::string> newest(std::size_t count) const;

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> lines_;
};

/// Every `?...` up to a blank or `]` becomes `?[redacted]`; then cut at a character to kMaxLineBytes.
[[nodiscard]] std::string without_queries(std::string_view line);

}  // namespace openshell::supervisor
