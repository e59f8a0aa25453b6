// When the keys of an issuer are fetched anew, and how long old ones count. Decides; fetches nothing, waits for nothing.
#pragma once

#include <chrono>
#include <optional>

namespace openshell::oidc {

using Clock = std::chrono::steady_clock;

/// Between two fetches that tokens caused.
constexpr std::chrono::seconds kFetchSpacing{1};
/// Keys of a set that could not be renewed count this many times as long as they were meant to.
constexpr int kGraceFactor = 3;

class KeySchedule {
 public:
  explicit KeySchedule(std::chrono::seconds lifetime) : lifetime_{lifetime} {}

  /// A fetch begins. One at a time: the caller asks `fetching` first.
  void started(Clock::time_point now);
  /// It brought at least one usable key.
  void succeeded(Clock::time_point now);
  /// It failed, or the set had no usable key.
  void failed();

  [[nodiscard]] bool fetching() const { return fetching_; }
  /// The keys at hand may be used: they are young enough, or within the grace period.
  [[nodiscard]] bool usable(Clock::time_point now) const;
  /// They are older than they should be.
  [[nodiscard]] bool stale(Clock::time_point now) const;
  /// Another fetch is allowed now.
  [[nodiscard]] bool may_fetch(Clock::time_point now) const;
  /// The last fetch failed: whoever has a key that still counts does not wait for the next one.
  [[nodiscard]] bool troubled() const { return troubled_; }

 private:
  std::chrono::seconds lifetime_;
  std::optional<Clock::time_point> good_;  ///< of the set at hand
  std::optional<Clock::time_point> last_start_;
  bool fetching_ = false;
  bool troubled_ = false;
};

}  // namespace openshell::oidc
