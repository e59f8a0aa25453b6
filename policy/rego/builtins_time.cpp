#include "policy/rego/builtins_groups.hpp"
#include "policy/rego/number.hpp"
#include "policy/rego/operands.hpp"
#include "policy/rego/time_layout.hpp"
#include "policy/rego/time_zone.hpp"

#include <array>
#include <limits>
#include <optional>

namespace openshell::policy::rego {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
__extension__ using Wide = __int128;

/// Nanoseconds since 1970 must fit 64 bits: years 1678 to 2262.
BuiltinResult nanoseconds(Wide value) {
  if (value < std::numeric_limits<std::int64_t>::min() || value > std::numeric_limits<std::int64_t>::max()) {
    return failure("time outside of valid range");
  }
  return Value::integer(static_cast<std::int64_t>(value));
}

constexpr std::pair<std::string_view, std::string_view> kLayouts[] = {{"ANSIC", "Mon Jan _2 15:04:05 2006"},
                                                                      {"UnixDate", "Mon Jan _2 15:04:05 MST 2006"},
                                                                      {"RubyDate", "Mon Jan 02 15:04:05 -0700 2006"},
                                                                      {"RFC822", "02 Jan 06 15:04 MST"},
                                                                      {"RFC822Z", "02 Jan 06 15:04 -0700"},
                                                                      {"RFC850", "Monday, 02-Jan-06 15:04:05 MST"},
                                                                      {"RFC1123", "Mon, 02 Jan 2006 15:04:05 MST"},
                                                                      {"RFC1123Z", "Mon, 02 Jan 2006 15:04:05 -0700"},
                                                                      {"RFC3339", kRfc3339},
                                                                      {"RFC3339Nano", kRfc3339Nano}};

/// Some layouts have names.
std::string_view layout_of(std::string_view text) {
  for (const auto& [name, layout] : kLayouts) {
    if (name == text) return layout;
  }
  return text;
}

BuiltinResult now(QueryContext& context, Arguments /*arguments*/) { return Value::integer(context.now_ns); }

BuiltinResult parse(std::string_view layout, std::string_view text) {
  const auto parsed = parse_time(layout, text);
  if (!parsed.ok()) return parsed.status();
  return nanoseconds(Wide{parsed->unix_seconds} * kSecond + parsed->nanosecond);
}

BuiltinResult parse_ns(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0, 1}); !status.ok()) return status;
  return parse(layout_of(a[0].text()), a[1].text());
}

BuiltinResult parse_rfc3339(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  return parse(kRfc3339, a[0].text());
}

std::optional<std::int64_t> unit_size(std::string_view unit) {
  if (unit == "ns") return 1;
  if (unit == "us" || unit == "\xC2\xB5s" || unit == "\xCE\xBCs") return 1'000;
  if (unit == "ms") return 1'000'000;
  if (unit == "s") return kSecond;
  if (unit == "m") return 60 * kSecond;
  if (unit == "h") return 3600 * kSecond;
  if (unit == "d") return 24 * 3600 * kSecond;
  if (unit == "w") return 7 * 24 * 3600 * kSecond;
  if (unit == "y") return 365 * 24 * 3600 * kSecond;
  return std::nullopt;
}

BuiltinResult parse_duration(QueryContext& /*context*/, Arguments a) {
  if (auto status = need_strings(a, {0}); !status.ok()) return status;
  const auto whole = a[0].text();
  const auto invalid = [&] { return failure("time: invalid duration ", quoted(whole)); };
  auto text = whole;
  const bool minus = text.starts_with('-');
  if (minus || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return Value::integer(0);
  if (text.empty()) return invalid();
  Wide sum = 0;
  const Wide most = Wide{std::numeric_limits<std::int64_t>::max()} + (minus ? 1 : 0);
  while (!text.empty()) {
    Wide number = 0;
    Wide fraction = 0;
    Wide scale = 1;
    bool digits = false;
    for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1), digits = true) {
      number = number * 10 + (text[0] - '0');
      if (number > most) return invalid();
    }
    if (text.starts_with('.')) {
      text.remove_prefix(1);
      for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1), digits = true) {
        if (scale > Wide{1'000'000'000'000'000'000}) continue;
        fraction = fraction * 10 + (text[0] - '0');
        scale *= 10;
      }
    }
    if (!digits) return invalid();
    const auto unit = text.substr(0, text.find_first_of(".0123456789"));
    if (unit.empty()) return failure("time: missing unit in duration ", quoted(whole));
    const auto size = unit_size(unit);
    if (!size) return failure("time: unknown unit ", quoted(unit), " in duration ", quoted(whole));
    text.remove_prefix(unit.size());
    sum += number * *size + fraction * *size / scale;
    if (sum > most) return invalid();
  }
  return Value::integer(static_cast<std::int64_t>(minus ? -sum : sum));
}

struct Moment {
  std::int64_t ns = 0;
  std::shared_ptr<const TimeZone> zone;
  std::string_view layout = kRfc3339Nano;
};

absl::StatusOr<Moment> moment_of(const Value& value, std::size_t position) {
  Moment moment;
  const auto items = value.items();
  if (!value.is_number() && (!value.is_array() || items.empty())) {
    return operand_error(position, "either number (ns) or [number (ns), string (tz)]", value);
  }
  const Value& number = value.is_number() ? value : items[0];
  if (!number.is_number()) return operand_error(position, "number", number);
  for (std::size_t i = 1; i < std::min<std::size_t>(3, items.size()); ++i) {
    if (!items[i].is_string()) return operand_error(position, "string", items[i]);
  }
  const auto ns = number.as_integer();
  if (!ns) return failure("timestamp too big");
  moment.ns = *ns;
  const auto name = items.size() > 1 ? items[1].text() : std::string_view{};
  moment.zone = TimeZone::find(name);
  if (!moment.zone) return failure("unknown time zone ", name);
  if (items.size() > 2) moment.layout = layout_of(items[2].text());
  return moment;
}

WallTime wall_time(std::int64_t ns, const TimeZone& zone) {
  const std::int64_t seconds = floor_div(ns, kSecond);
  ZoneOffset offset = zone.at(seconds);
  const std::int64_t local = seconds + offset.seconds;
  const std::int64_t days = floor_div(local, 86400);
  const auto of_day = static_cast<int>(local - days * 86400);
  return {date_of(days),
          of_day / 3600,
          of_day / 60 % 60,
          of_day % 60,
          static_cast<std::int32_t>(ns - seconds * kSecond),
          offset.seconds,
          std::move(offset.abbreviation)};
}

WallTime wall_time(const Moment& moment) { return wall_time(moment.ns, *moment.zone); }

BuiltinResult numbers(std::initializer_list<std::int64_t> values) {
  std::vector<Value> out;
  for (const auto value : values) out.push_back(Value::integer(value));
  return Value::array(std::move(out));
}

BuiltinResult format(QueryContext& context, Arguments a) {
  const auto moment = moment_of(a[0], 1);
  if (!moment.ok()) return moment.status();
  if (auto status = context.charge(moment->layout.size() / 16); !status.ok()) return status;
  return Value::string(format_time(wall_time(*moment), moment->layout));
}

BuiltinResult date(QueryContext& /*context*/, Arguments a) {
  const auto moment = moment_of(a[0], 1);
  if (!moment.ok()) return moment.status();
  const auto time = wall_time(*moment);
  return numbers({time.date.year, time.date.month, time.date.day});
}

BuiltinResult clock(QueryContext& /*context*/, Arguments a) {
  const auto moment = moment_of(a[0], 1);
  if (!moment.ok()) return moment.status();
  const auto time = wall_time(*moment);
  return numbers({time.hour, time.minute, time.second});
}

BuiltinResult weekday(QueryContext& /*context*/, Arguments a) {
  static constexpr std::array<std::string_view, 7> kDays = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  const auto moment = moment_of(a[0], 1);
  if (!moment.ok()) return moment.status();
  return Value::string(kDays[static_cast<std::size_t>(weekday_of(days_of(wall_time(*moment).date)))]);
}

BuiltinResult add_date(QueryContext& /*context*/, Arguments a) {
  const auto moment = moment_of(a[0], 1);
  if (!moment.ok()) return moment.status();
  std::array<std::int64_t, 3> steps{};
  for (std::size_t i = 0; i < 3; ++i) {
    const Value& step = a[i + 1];
    if (!step.is_number()) return operand_error(i + 2, "number", step);
    const auto integer = step.as_integer();
    if (!integer) return misuse("operand ", i + 2, " must be integer number but got floating-point number");
    if (*integer > 1'000'000 || *integer < -1'000'000) return failure("time outside of valid range");
    steps[i] = *integer;
  }
  const auto time = wall_time(*moment);
  const std::int64_t months = time.date.year * 12 + (time.date.month - 1) + steps[0] * 12 + steps[1];
  const std::int64_t year = floor_div(months, 12);
  const std::int64_t days = days_of({year, static_cast<int>(months - year * 12) + 1, 1}) + time.date.day - 1 + steps[2];
  const std::int64_t seconds = days * 86400 + time.hour * 3600 + time.minute * 60 + time.second;
  const std::int64_t offset = moment->zone->at(seconds - time.offset).seconds;
  return nanoseconds((Wide{seconds} - offset) * kSecond + time.nanosecond);
}

/// Years, months, days, hours, minutes and seconds between two moments, each below the next larger unit.
BuiltinResult diff(QueryContext& /*context*/, Arguments a) {
  const auto one = moment_of(a[0], 1);
  if (!one.ok()) return one.status();
  const auto other = moment_of(a[1], 2);
  if (!other.ok()) return other.status();
  const bool swap = one->ns > other->ns;
  // Both as the first operand's zone shows them.
  const auto from = wall_time(swap ? other->ns : one->ns, *one->zone);
  const auto to = wall_time(swap ? one->ns : other->ns, *one->zone);
  std::int64_t years = to.date.year - from.date.year;
  std::int64_t months = to.date.month - from.date.month;
  std::int64_t days = to.date.day - from.date.day;
  std::int64_t hours = to.hour - from.hour;
  std::int64_t minutes = to.minute - from.minute;
  std::int64_t seconds = to.second - from.second;
  const auto borrow = [](std::int64_t& lower, std::int64_t size, std::int64_t& upper) {
    if (lower >= 0) return;
    lower += size;
    --upper;
  };
  borrow(seconds, 60, minutes);
  borrow(minutes, 60, hours);
  borrow(hours, 24, days);
  borrow(days, days_in_month(from.date.year, from.date.month), months);
  borrow(months, 12, years);
  return numbers({years, months, days, hours, minutes, seconds});
}

}  // namespace

const BuiltinTable& time_builtins() {
  using namespace types;
  static const Type moment = any_of({number(), tuple({number(), string()})});
  static const Type shown = any_of({number(), tuple({number(), string()}), tuple({number(), string(), string()})});
  static const Type three = tuple({number(), number(), number()});
  static const BuiltinTable table = {
      {"time.add_date", {number(), number(), number(), number()}, number(), add_date},
      {"time.clock", {moment}, three, clock},
      {"time.date", {moment}, three, date},
      {"time.diff", {moment, moment}, tuple({number(), number(), number(), number(), number(), number()}), diff},
      {"time.format", {shown}, string(), format},
      {"time.now_ns", {}, number(), now, true},
      {"time.parse_duration_ns", {string()}, number(), parse_duration},
      {"time.parse_ns", {string(), string()}, number(), parse_ns},
      {"time.parse_rfc3339_ns", {string()}, number(), parse_rfc3339},
      {"time.weekday", {moment}, string(), weekday},
  };
  return table;
}

}  // namespace openshell::policy::rego
