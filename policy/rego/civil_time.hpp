// Days and dates of the proleptic Gregorian calendar, for any year.
#pragma once

#include <cstdint>

namespace openshell::policy::rego {

struct Date {
  std::int64_t year = 1970;
  int month = 1;
  int day = 1;
};

constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
constexpr bool is_leap_year(std::int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }
constexpr int days_in_month(std::int64_t year, int month) {
  return month == 2 ? (is_leap_year(year) ? 29 : 28) : month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

/// Days since 1970-01-01; the day may lie outside its month. The year begins with March here, so that the leap day is its last.
constexpr std::int64_t days_of(const Date& date) {
  const std::int64_t year = date.month <= 2 ? date.year - 1 : date.year;
  const std::int64_t era = floor_div(year, 400);
  const std::int64_t of_era = year - era * 400;
  const std::int64_t of_year = (153 * (date.month + (date.month > 2 ? -3 : 9)) + 2) / 5;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year + date.day - 1 - 719468;
}

constexpr Date date_of(std::int64_t days) {
  const std::int64_t shifted = days + 719468;
  const std::int64_t era = floor_div(shifted, 146097);
  const std::int64_t of_era = shifted - era * 146097;
  const std::int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  const std::int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
  const std::int64_t month = (5 * of_year + 2) / 153;
  return {year + era * 400 + (month >= 10 ? 1 : 0), static_cast<int>(month < 10 ? month + 3 : month - 9),
          static_cast<int>(of_year - (153 * month + 2) / 5 + 1)};
}

/// 0 is Sunday.
constexpr int weekday_of(std::int64_t days) { return static_cast<int>(((days + 4) % 7 + 7) % 7); }

}  // namespace openshell::policy::rego
