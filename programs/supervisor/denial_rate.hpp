#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

namespace openshell::supervisor {

/// Which denied opens make a line at the gateway: the first of each (host, port, program) at once, then one a second. All are counted in
/// the summaries and stand in the supervisor's own log. Pure; one thread at a time.
class DenialRate {
 public:
  static constexpr std::chrono::milliseconds kInterval{1'000};
  static constexpr std::size_t kMaxKeys = 4'096;  ///< as in the summaries; further new keys make no line until others are old

  using TimePoint = std::chrono::steady_clock::time_point;

  bool admit(const std::string& host, std::uint16_t port, const std::string& binary, TimePoint now) {
    const auto key = std::make_tuple(host, port, binary);
    if (const auto known = last_.find(key); known != last_.end()) {
      if (now - known->second < kInterval) return false;
      known->second = now;
      return true;
    }
    if (last_.size() >= kMaxKeys) forget_old(now);
    if (last_.size() >= kMaxKeys) return false;
    last_.emplace(key, now);
    return true;
  }

 private:
  void forget_old(TimePoint now) {
    if (now - swept_ < kInterval) return;  // at most once an interval, however many new keys come
    swept_ = now;
    std::erase_if(last_, [now](const auto& entry) { return now - entry.second >= kInterval; });
  }

  std::map<std::tuple<std::string, std::uint16_t, std::string>, TimePoint> last_;
  TimePoint swept_{};
};

}  // namespace openshell::supervisor
