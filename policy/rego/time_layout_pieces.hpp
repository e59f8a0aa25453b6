// The pieces of a time layout. Internal to time_layout*.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace openshell::policy::rego::layout {

enum class Piece {
  none,
  month_name,
  month_short,
  month,
  month_two,
  weekday_name,
  weekday_short,
  day,
  day_space,
  day_two,
  year_day,
  year_day_space,
  hour,
  hour_12,
  hour_12_two,
  minute,
  minute_two,
  second,
  second_two,
  year,
  year_two,
  half_upper,
  half_lower,
  zone,
  iso_z,
  iso_seconds_z,
  iso_short_z,
  iso_colon_z,
  iso_colon_seconds_z,
  offset,
  offset_seconds,
  offset_short,
  offset_colon,
  offset_colon_seconds,
  fraction_zeros,
  fraction_nines
};

struct Next {
  std::string_view before;  ///< Text that stands for itself.
  Piece piece = Piece::none;
  std::string_view text;  ///< The piece as the layout spells it.
  std::string_view after;
};

/// The first piece of a layout; `none` where the rest is plain.
Next next_piece(std::string_view layout);

inline constexpr std::array<std::string_view, 12> kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                                             "July",    "August",   "September", "October", "November", "December"};
inline constexpr std::array<std::string_view, 7> kWeekdays = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

}  // namespace openshell::policy::rego::layout
