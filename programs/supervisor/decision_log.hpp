#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "egress/decisions.hpp"

namespace openshell::supervisor {

struct DecisionLimits {
  std::size_t records = 10'000;
  std::size_t bytes = 16UL * 1024 * 1024;  ///< of all lines together
};

/// The newest decisions of this sandbox, for `policy replay`: in memory, never on disk, without any value that a request carried. Written
/// on the engine's thread, read from any. A decision that is not kept is counted: the oldest go first, one that is too large is not taken
/// in.
class DecisionLog final : public egress::DecisionSink {
 public:
  using WallTime = std::chrono::system_clock::time_point;

  using Lines = std::vector<std::shared_ptr<const std::string>>;
  struct Snapshot {
    Lines lines;  ///< JSON, oldest first, without line ends
    std::uint64_t dropped = 0;
  };

  explicit DecisionLog(
      DecisionLimits limits = {}, std::function<WallTime()> now = [] { return std::chrono::system_clock::now(); })
      : limits_{limits}, now_{std::move(now)} {}

  void decided(const egress::Generation& generation, const policy::Destination& destination, const policy::Request* request,
               policy::Verdict verdict) noexcept override;

  /// The newest `limit` of those since then.
  [[nodiscard]] Snapshot snapshot(std::optional<WallTime> since, std::size_t limit) const;

 private:
  struct Entry {
    WallTime time;
    std::shared_ptr<const std::string> line;
  };

  void keep(Entry entry);

  const DecisionLimits limits_;
  const std::function<WallTime()> now_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace openshell::supervisor
