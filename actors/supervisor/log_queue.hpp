#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "messages/supervisor.hpp"

namespace openshell::supervisor {

/// Between everything that logs and LogPush: bounded, the newest is dropped and counted, so that nothing that logs ever waits. Any thread.
class LogQueue {
 public:
  static constexpr std::size_t kMaxLines = 1'024;

  void on_fill(std::function<void(bool urgent)> wake) {
    const std::lock_guard lock{mutex_};
    wake_ = std::move(wake);
  }

  /// `urgent`: sent at once with what is queued (a denial).
  void push(LogLine line, bool urgent) {
    std::function<void(bool)> wake;
    {
      const std::lock_guard lock{mutex_};
      if (lines_.size() >= kMaxLines) {
        ++dropped_;
        return;
      }
      if (lines_.empty() || urgent) wake = wake_;
      lines_.push_back(std::move(line));
    }
    if (wake) wake(urgent);
  }

  /// The oldest lines, `count` at most.
  [[nodiscard]] std::vector<LogLine> take(std::size_t count) {
    const std::lock_guard lock{mutex_};
    count = std::min(count, lines_.size());
    std::vector<LogLine> out{std::make_move_iterator(lines_.begin()),
                             std::make_move_iterator(lines_.begin() + static_cast<std::ptrdiff_t>(count))};
    lines_.erase(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(count));
    return out;
  }

  /// Lines that could not be sent come back in front; what does not fit is dropped from the end.
  void put_back(std::vector<LogLine> lines) {
    const std::lock_guard lock{mutex_};
    lines_.insert(lines_.begin(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
    while (lines_.size() > kMaxLines) {
      lines_.pop_back();
      ++dropped_;
    }
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock{mutex_};
    return lines_.size();
  }
  [[nodiscard]] std::uint64_t dropped() const {
    const std::lock_guard lock{mutex_};
    return dropped_;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<LogLine> lines_;
  std::function<void(bool)> wake_;
  std::uint64_t dropped_ = 0;
};

}  // namespace openshell::supervisor
