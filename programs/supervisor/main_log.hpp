#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "programs/supervisor/process_output.hpp"

namespace openshell::supervisor {

/// The newest output of main, numbered from 0 in the order in which it was read. Pure; one owner.
class MainLog {
 public:
  explicit MainLog(std::size_t retained_bytes) : limit_{retained_bytes} {}

  /// The oldest events go until the rest fits; the newest stays, whatever its size.
  void append(ProcessOutput output) {
    bytes_ += output.bytes.size();
    events_.push_back(std::move(output));
    while (bytes_ > limit_ && events_.size() > 1) {
      bytes_ -= events_.front().bytes.size();
      events_.pop_front();
      ++first_;
    }
  }
  /// Events that were lost before they came here: whoever has not read up to here is behind by them.
  void skip(std::uint64_t events) {
    if (events == 0) return;
    first_ = next() + events;
    events_.clear();
    bytes_ = 0;
  }

  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  [[nodiscard]] std::uint64_t next() const noexcept { return first_ + events_.size(); }
  /// `first() <= number < next()`.
  [[nodiscard]] const ProcessOutput& at(std::uint64_t number) const { return events_[static_cast<std::size_t>(number - first_)]; }
  /// Data of all events held.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  const std::size_t limit_;
  std::deque<ProcessOutput> events_;
  std::uint64_t first_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace openshell::supervisor
