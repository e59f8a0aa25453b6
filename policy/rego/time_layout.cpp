#include "policy/rego/time_layout.hpp"

#include "policy/rego/time_layout_pieces.hpp"
#include "policy/text.hpp"

namespace openshell::policy::rego {
namespace layout {
namespace {

struct Spelling {
  std::string_view text;
  Piece piece;
};

/// Longer spellings before their beginnings.
constexpr Spelling kSpellings[] = {{"January", Piece::month_name},
                                   {"Jan", Piece::month_short},
                                   {"Monday", Piece::weekday_name},
                                   {"Mon", Piece::weekday_short},
                                   {"MST", Piece::zone},
                                   {"002", Piece::year_day},
                                   {"01", Piece::month_two},
                                   {"02", Piece::day_two},
                                   {"03", Piece::hour_12_two},
                                   {"04", Piece::minute_two},
                                   {"05", Piece::second_two},
                                   {"06", Piece::year_two},
                                   {"15", Piece::hour},
                                   {"1", Piece::month},
                                   {"2006", Piece::year},
                                   {"2", Piece::day},
                                   {"__2", Piece::year_day_space},
                                   {"_2", Piece::day_space},
                                   {"3", Piece::hour_12},
                                   {"4", Piece::minute},
                                   {"5", Piece::second},
                                   {"PM", Piece::half_upper},
                                   {"pm", Piece::half_lower},
                                   {"-07:00:00", Piece::offset_colon_seconds},
                                   {"-070000", Piece::offset_seconds},
                                   {"-07:00", Piece::offset_colon},
                                   {"-0700", Piece::offset},
                                   {"-07", Piece::offset_short},
                                   {"Z07:00:00", Piece::iso_colon_seconds_z},
                                   {"Z070000", Piece::iso_seconds_z},
                                   {"Z07:00", Piece::iso_colon_z},
                                   {"Z0700", Piece::iso_z},
                                   {"Z07", Piece::iso_short_z}};

bool is_digit(std::string_view text, std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; }
bool is_small_letter(std::string_view text, std::size_t at) { return at < text.size() && text[at] >= 'a' && text[at] <= 'z'; }

/// `.000` and `,999`: as many digits as stand there, if no other digit follows.
std::size_t fraction_size(std::string_view text) {
  if (text.size() < 2 || (text[0] != '.' && text[0] != ',') || (text[1] != '0' && text[1] != '9')) return 0;
  std::size_t size = 1;
  while (size < text.size() && text[size] == text[1]) ++size;
  return is_digit(text, size) ? 0 : size;
}

}  // namespace

Next next_piece(std::string_view layout) {
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const auto rest = layout.substr(i);
    const auto found = [&](Piece piece, std::size_t size) {
      return Next{layout.substr(0, i), piece, rest.substr(0, size), rest.substr(size)};
    };
    if (rest.starts_with("_2006")) {  // an underscore, then the year
      return {layout.substr(0, i + 1), Piece::year, rest.substr(1, 4), rest.substr(5)};
    }
    if (const auto size = fraction_size(rest); size != 0)
      return found(rest[1] == '0' ? Piece::fraction_zeros : Piece::fraction_nines, size);
    for (const auto& spelling : kSpellings) {
      if (!rest.starts_with(spelling.text)) continue;
      const bool is_word = spelling.piece == Piece::month_short || spelling.piece == Piece::weekday_short;
      if (is_word && is_small_letter(rest, spelling.text.size())) continue;
      return found(spelling.piece, spelling.text.size());
    }
  }
  return {layout, Piece::none, {}, {}};
}

}  // namespace layout

namespace {

using layout::Piece;

void pad(std::string& out, std::int64_t value, std::size_t width, char with = '0') {
  if (value < 0) {
    out += '-';
    value = -value;
  }
  const std::string digits = std::to_string(value);
  if (digits.size() < width) out.append(width - digits.size(), with);
  out += digits;
}

void append_offset(std::string& out, std::int32_t offset, bool minutes, bool colon, bool seconds) {
  out += offset < 0 ? '-' : '+';
  const std::int32_t size = offset < 0 ? -offset : offset;
  pad(out, size / 3600, 2);
  if (colon) out += ':';
  if (minutes) pad(out, size / 60 % 60, 2);
  if (seconds) {
    if (colon) out += ':';
    pad(out, size % 60, 2);
  }
}

void append_fraction(std::string& out, const WallTime& time, std::string_view form, bool drop_zeros) {
  std::string digits;
  pad(digits, time.nanosecond, 9);
  digits.resize(std::min<std::size_t>(form.size() - 1, 9));
  if (!drop_zeros) digits.append(form.size() - 1 - digits.size(), '0');
  if (drop_zeros) {
    digits.resize(digits.find_last_not_of('0') + 1);
    if (digits.empty()) return;
  }
  out += form[0];
  out += digits;
}

void append_zone(std::string& out, const WallTime& time) {
  if (!time.zone.empty()) {
    out += time.zone;
    return;
  }
  append_offset(out, time.offset, true, false, false);
}

bool append_zone_piece(std::string& out, const WallTime& time, Piece piece) {
  const bool z = time.offset == 0;
  switch (piece) {
    case Piece::zone:
      append_zone(out, time);
      return true;
    case Piece::iso_z:
    case Piece::iso_colon_z:
    case Piece::iso_seconds_z:
    case Piece::iso_short_z:
    case Piece::iso_colon_seconds_z:
      if (z) {
        out += 'Z';
        return true;
      }
      break;
    default:
      break;
  }
  switch (piece) {
    case Piece::iso_z:
    case Piece::offset:
      append_offset(out, time.offset, true, false, false);
      return true;
    case Piece::iso_colon_z:
    case Piece::offset_colon:
      append_offset(out, time.offset, true, true, false);
      return true;
    case Piece::iso_seconds_z:
    case Piece::offset_seconds:
      append_offset(out, time.offset, true, false, true);
      return true;
    case Piece::iso_colon_seconds_z:
    case Piece::offset_colon_seconds:
      append_offset(out, time.offset, true, true, true);
      return true;
    case Piece::iso_short_z:
    case Piece::offset_short:
      append_offset(out, time.offset, false, false, false);
      return true;
    default:
      return false;
  }
}

void append_piece(std::string& out, const WallTime& time, const layout::Next& next) {
  const std::int64_t days = days_of(time.date);
  const auto month = layout::kMonths[static_cast<std::size_t>(time.date.month - 1)];
  const auto weekday = layout::kWeekdays[static_cast<std::size_t>(weekday_of(days))];
  const std::int64_t year_day = days - days_of({time.date.year, 1, 1}) + 1;
  const int hour_12 = time.hour % 12 == 0 ? 12 : time.hour % 12;
  if (append_zone_piece(out, time, next.piece)) return;
  switch (next.piece) {
    case Piece::month_name:
      out += month;
      break;
    case Piece::month_short:
      out += month.substr(0, 3);
      break;
    case Piece::month:
      pad(out, time.date.month, 0);
      break;
    case Piece::month_two:
      pad(out, time.date.month, 2);
      break;
    case Piece::weekday_name:
      out += weekday;
      break;
    case Piece::weekday_short:
      out += weekday.substr(0, 3);
      break;
    case Piece::day:
      pad(out, time.date.day, 0);
      break;
    case Piece::day_space:
      pad(out, time.date.day, 2, ' ');
      break;
    case Piece::day_two:
      pad(out, time.date.day, 2);
      break;
    case Piece::year_day:
      pad(out, year_day, 3);
      break;
    case Piece::year_day_space:
      pad(out, year_day, 3, ' ');
      break;
    case Piece::hour:
      pad(out, time.hour, 2);
      break;
    case Piece::hour_12:
      pad(out, hour_12, 0);
      break;
    case Piece::hour_12_two:
      pad(out, hour_12, 2);
      break;
    case Piece::minute:
      pad(out, time.minute, 0);
      break;
    case Piece::minute_two:
      pad(out, time.minute, 2);
      break;
    case Piece::second:
      pad(out, time.second, 0);
      break;
    case Piece::second_two:
      pad(out, time.second, 2);
      break;
    case Piece::year:
      pad(out, time.date.year, 4);
      break;
    case Piece::year_two:
      pad(out, (time.date.year % 100 + 100) % 100, 2);
      break;
    case Piece::half_upper:
      out += time.hour >= 12 ? "PM" : "AM";
      break;
    case Piece::half_lower:
      out += time.hour >= 12 ? "pm" : "am";
      break;
    case Piece::fraction_zeros:
      append_fraction(out, time, next.text, false);
      break;
    case Piece::fraction_nines:
      append_fraction(out, time, next.text, true);
      break;
    default:
      break;
  }
}

}  // namespace

std::string format_time(const WallTime& time, std::string_view form) {
  std::string out;
  while (!form.empty()) {
    const auto next = layout::next_piece(form);
    out += next.before;
    if (next.piece != Piece::none) append_piece(out, time, next);
    form = next.after;
  }
  return out;
}

}  // namespace openshell::policy::rego
