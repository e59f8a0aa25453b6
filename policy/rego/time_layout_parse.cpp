#include "policy/rego/operands.hpp"
#include "policy/rego/time_layout.hpp"
#include "policy/rego/time_layout_pieces.hpp"

#include <optional>

namespace openshell::policy::rego {
namespace {

using layout::Piece;

bool is_digit(std::string_view text, std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; }

/// What the pieces said so far. A function answers false where the text does not fit; a value out of its range is remembered by name.
struct Reader {
  std::string_view text;
  std::optional<std::int64_t> year;
  int month = -1, day = -1, year_day = -1, hour = 0, minute = 0, second = 0;
  std::int32_t nanosecond = 0;
  bool afternoon = false, morning = false;
  std::optional<std::int32_t> offset;
  std::string_view out_of_range;

  std::optional<int> digits(std::size_t least, std::size_t most) {
    std::size_t size = 0;
    int value = 0;
    while (size < most && is_digit(text, size)) value = value * 10 + (text[size++] - '0');
    if (size < least) return std::nullopt;
    text.remove_prefix(size);
    return value;
  }

  bool set(int& field, std::size_t least, std::size_t most) {
    const auto value = digits(least, most);
    if (value) field = *value;
    return value.has_value();
  }

  bool bounded(int& field, std::size_t least, int low, int high, std::string_view name) {
    if (!set(field, least, 2)) return false;
    if (field < low || field > high) out_of_range = name;
    return true;
  }

  void skip_spaces() {
    while (text.starts_with(' ')) text.remove_prefix(1);
  }

  template <std::size_t N>
  bool one_of(const std::array<std::string_view, N>& names, bool brief, int& index) {
    for (std::size_t i = 0; i < N; ++i) {
      const auto name = brief ? names[i].substr(0, 3) : names[i];
      if (text.size() < name.size() || text::lower(text.substr(0, name.size())) != text::lower(name)) continue;
      index = static_cast<int>(i);
      text.remove_prefix(name.size());
      return true;
    }
    return false;
  }

  bool fraction(std::size_t size) {
    if (text.size() < size + 1 || (text[0] != '.' && text[0] != ',')) return false;
    std::int32_t value = 0;
    for (std::size_t i = 1; i <= size; ++i) {
      if (!is_digit(text, i)) return false;
      if (i <= 9) value = value * 10 + (text[i] - '0');
    }
    for (std::size_t i = size; i < 9; ++i) value *= 10;
    nanosecond = value;
    text.remove_prefix(size + 1);
    return true;
  }

  /// After the seconds a fraction may follow which the layout does not name.
  void stray_fraction(std::string_view rest_of_layout) {
    if ((!text.starts_with('.') && !text.starts_with(',')) || !is_digit(text, 1)) return;
    const auto next = layout::next_piece(rest_of_layout);
    if (next.before.empty() && (next.piece == Piece::fraction_zeros || next.piece == Piece::fraction_nines)) return;
    std::size_t size = 1;
    while (is_digit(text, size + 1)) ++size;
    fraction(size);
  }

  bool zone_offset(bool minutes, bool colon, bool seconds) {
    if (text.empty() || (text[0] != '+' && text[0] != '-')) return false;
    const std::int32_t sign = text[0] == '-' ? -1 : 1;
    auto rest = *this;
    rest.text.remove_prefix(1);
    const auto part = [&](bool first) -> std::optional<int> {
      if (!first && colon) {
        if (!rest.text.starts_with(':')) return std::nullopt;
        rest.text.remove_prefix(1);
      }
      return rest.digits(2, 2);
    };
    const auto h = part(true);
    const auto m = minutes ? part(false) : std::optional<int>(0);
    const auto s = seconds ? part(false) : std::optional<int>(0);
    if (!h || !m || !s) return false;
    if (*h > 24 || *m > 60 || *s > 60)
      out_of_range = *h > 24 ? "time zone offset hour" : *m > 60 ? "time zone offset minute" : "time zone offset second";
    offset = sign * (*h * 3600 + *m * 60 + *s);
    text = rest.text;
    return true;
  }

  bool iso_offset(bool minutes, bool colon, bool seconds) {
    if (text.starts_with('Z')) {
      text.remove_prefix(1);
      offset = 0;
      return true;
    }
    return zone_offset(minutes, colon, seconds);
  }

  /// `CET`, `UTC`, `GMT-8`, `+03`; says nothing about the offset.
  bool zone_letters() {
    if (text.starts_with('+') || text.starts_with('-')) {
      if (!is_digit(text, 1) || !is_digit(text, 2)) return false;
      text.remove_prefix(3);
      return true;
    }
    std::size_t size = 0;
    while (size < text.size() && size < 6 && text[size] >= 'A' && text[size] <= 'Z') ++size;
    if (text.starts_with("GMT")) {
      size = 3;
      if (text.size() > 3 && (text[3] == '+' || text[3] == '-')) {
        std::size_t end = 4;
        while (is_digit(text, end)) ++end;
        if (end > 4) size = end;
      }
    } else if (text.starts_with("ChST") || text.starts_with("MeST")) {
      size = 4;
    } else if (size < 3 || size > 5 || (size == 5 && text[4] != 'T') || (size == 4 && text[3] != 'T' && !text.starts_with("WITA"))) {
      return false;
    }
    text.remove_prefix(size);
    return true;
  }

  bool read(const layout::Next& next) {
    int ignored = 0;
    switch (next.piece) {
      case Piece::year: {
        int value = 0;
        if (!is_digit(text, 0) || !set(value, 4, 4)) return false;
        year = value;
        return true;
      }
      case Piece::year_two: {
        int value = 0;
        if (!set(value, 2, 2)) return false;
        year = value >= 69 ? value + 1900 : value + 2000;
        return true;
      }
      case Piece::month_name:
      case Piece::month_short:
        if (!one_of(layout::kMonths, next.piece == Piece::month_short, month)) return false;
        ++month;
        return true;
      case Piece::month:
        return bounded(month, 1, 1, 12, "month");
      case Piece::month_two:
        return bounded(month, 2, 1, 12, "month");
      case Piece::weekday_name:
        return one_of(layout::kWeekdays, false, ignored);
      case Piece::weekday_short:
        return one_of(layout::kWeekdays, true, ignored);
      case Piece::day_space:
        if (text.starts_with(' ')) text.remove_prefix(1);
        return set(day, 1, 2);
      case Piece::day:
        return set(day, 1, 2);
      case Piece::day_two:
        return set(day, 2, 2);
      case Piece::year_day_space:
        skip_spaces();
        return set(year_day, 1, 3);
      case Piece::year_day:
        return set(year_day, 3, 3);
      case Piece::hour:
        return bounded(hour, 1, 0, 23, "hour");
      case Piece::hour_12:
        return bounded(hour, 1, 0, 12, "hour");
      case Piece::hour_12_two:
        return bounded(hour, 2, 0, 12, "hour");
      case Piece::minute:
        return bounded(minute, 1, 0, 59, "minute");
      case Piece::minute_two:
        return bounded(minute, 2, 0, 59, "minute");
      case Piece::second:
      case Piece::second_two:
        if (!bounded(second, next.piece == Piece::second ? 1 : 2, 0, 59, "second")) return false;
        stray_fraction(next.after);
        return true;
      case Piece::half_upper:
      case Piece::half_lower: {
        const bool upper = next.piece == Piece::half_upper;
        afternoon = text.starts_with(upper ? "PM" : "pm");
        morning = text.starts_with(upper ? "AM" : "am");
        if (!afternoon && !morning) return false;
        text.remove_prefix(2);
        return true;
      }
      case Piece::zone:
        if (text.starts_with("UTC")) {
          offset = 0;
          text.remove_prefix(3);
          return true;
        }
        return zone_letters();
      case Piece::iso_z:
        return iso_offset(true, false, false);
      case Piece::iso_colon_z:
        return iso_offset(true, true, false);
      case Piece::iso_seconds_z:
        return iso_offset(true, false, true);
      case Piece::iso_colon_seconds_z:
        return iso_offset(true, true, true);
      case Piece::iso_short_z:
        return iso_offset(false, false, false);
      case Piece::offset:
        return zone_offset(true, false, false);
      case Piece::offset_colon:
        return zone_offset(true, true, false);
      case Piece::offset_seconds:
        return zone_offset(true, false, true);
      case Piece::offset_colon_seconds:
        return zone_offset(true, true, true);
      case Piece::offset_short:
        return zone_offset(false, false, false);
      case Piece::fraction_zeros:
        return fraction(next.text.size() - 1);
      case Piece::fraction_nines: {
        if ((!text.starts_with('.') && !text.starts_with(',')) || !is_digit(text, 1)) return true;
        std::size_t size = 1;
        while (size < 9 && is_digit(text, size + 1)) ++size;
        return fraction(size);
      }
      case Piece::none:
        return true;
    }
    return false;
  }

  /// The plain text of the layout; a space in it stands for any number of them, none included at the end.
  bool skip_plain(std::string_view plain) {
    while (!plain.empty()) {
      if (plain[0] == ' ') {
        if (!text.empty() && text[0] != ' ') return false;
        while (plain.starts_with(' ')) plain.remove_prefix(1);
        skip_spaces();
        continue;
      }
      if (text.empty() || text[0] != plain[0]) return false;
      plain.remove_prefix(1);
      text.remove_prefix(1);
    }
    return true;
  }
};

absl::StatusOr<ParsedTime> moment(Reader& reader, std::string_view text) {
  const auto outside = [&](std::string_view name) { return failure("parsing time ", quoted(text), ": ", name, " out of range"); };
  const std::int64_t year = reader.year.value_or(0);
  if (reader.afternoon && reader.hour < 12) reader.hour += 12;
  if (reader.morning && reader.hour == 12) reader.hour = 0;
  if (reader.year_day >= 0) {
    if (reader.year_day < 1 || reader.year_day > (is_leap_year(year) ? 366 : 365)) return outside("day-of-year");
    const auto date = date_of(days_of({year, 1, 1}) + reader.year_day - 1);
    if ((reader.month >= 0 && reader.month != date.month) || (reader.day >= 0 && reader.day != date.day)) {
      return failure("parsing time ", quoted(text), ": day-of-year does not match ",
                     reader.month >= 0 && reader.month != date.month ? "month" : "day");
    }
    reader.month = date.month;
    reader.day = date.day;
  }
  if (reader.month < 0) reader.month = 1;
  if (reader.day < 0) reader.day = 1;
  if (reader.day < 1 || reader.day > days_in_month(year, reader.month)) return outside("day");
  const std::int64_t days = days_of({year, reader.month, reader.day});
  return ParsedTime{days * 86400 + reader.hour * 3600 + reader.minute * 60 + reader.second - reader.offset.value_or(0), reader.nanosecond};
}

}  // namespace

absl::StatusOr<ParsedTime> parse_time(std::string_view form, std::string_view text) {
  Reader reader;
  reader.text = text;
  const std::string_view whole_form = form;
  const auto misfit = [&](std::string_view rest, std::string_view piece) {
    return failure("parsing time ", quoted(text), " as ", quoted(whole_form), ": cannot parse ", quoted(rest), " as ", quoted(piece));
  };
  for (;;) {
    const auto next = layout::next_piece(form);
    const auto before = reader.text;
    if (!reader.skip_plain(next.before)) return misfit(before, next.before);
    if (next.piece == Piece::none) break;
    const auto rest = reader.text;
    if (!reader.read(next)) return misfit(rest, next.text);
    if (!reader.out_of_range.empty()) return failure("parsing time ", quoted(text), ": ", reader.out_of_range, " out of range");
    form = next.after;
  }
  if (!reader.text.empty()) return failure("parsing time ", quoted(text), ": extra text: ", quoted(reader.text));
  return moment(reader, text);
}

}  // namespace openshell::policy::rego
