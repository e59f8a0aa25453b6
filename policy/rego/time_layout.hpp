// Times as text, in the form a layout shows: how the moment 2006-01-02 15:04:05 -0700 would be written.
#pragma once

#include "policy/rego/civil_time.hpp"

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace openshell::policy::rego {

inline constexpr std::string_view kRfc3339 = "2006-01-02T15:04:05Z07:00";
inline constexpr std::string_view kRfc3339Nano = "2006-01-02T15:04:05.999999999Z07:00";

/// A moment as a clock on the wall in its zone shows it.
struct WallTime {
  Date date;
  int hour = 0, minute = 0, second = 0;
  std::int32_t nanosecond = 0;
  std::int32_t offset = 0;  ///< Seconds east of UTC.
  std::string zone = "UTC";
};

std::string format_time(const WallTime& time, std::string_view layout);

struct ParsedTime {
  std::int64_t unix_seconds = 0;
  std::int32_t nanosecond = 0;
};
/// UNKNOWN `parsing time "..." as "...": cannot parse "..." as "..."`. A zone known by its letters only counts as UTC.
absl::StatusOr<ParsedTime> parse_time(std::string_view layout, std::string_view text);

}  // namespace openshell::policy::rego
