// Durations of one run, and what is said of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace openshell::bench {

using Clock = std::chrono::steady_clock;

inline double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

/// The value below which `share` of the (sorted here) values lie: nearest rank.
inline double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(rank, values.size() - 1)];
}

/// One line of JSON on stdout: p50, p99 in microseconds, count, and operations a second over the wall time.
inline void report(std::vector<double>& values, Clock::duration wall) {
  const double seconds = std::chrono::duration<double>(wall).count();
  std::printf("{\"p50_us\": %.2f, \"p99_us\": %.2f, \"count\": %zu, \"rate\": %.1f}\n", quantile(values, 0.5), quantile(values, 0.99),
              values.size(), static_cast<double>(values.size()) / seconds);
}

}  // namespace openshell::bench
