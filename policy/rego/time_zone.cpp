#include "policy/rego/time_zone.hpp"

#include "policy/rego/civil_time.hpp"
#include "policy/text.hpp"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace openshell::policy::rego {
namespace {

constexpr std::size_t kMostBytes = 1U << 20U;
constexpr std::size_t kMostKept = 64;

/// Names come from a policy: nothing that leaves the directory.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() < 128 && name.front() != '/' && name.find("..") == std::string_view::npos &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_+-") == std::string_view::npos;
}

std::int64_t big_endian(std::string_view bytes) {
  std::int64_t out = static_cast<signed char>(bytes[0]);
  for (const char byte : bytes.substr(1)) out = out * 256 + static_cast<unsigned char>(byte);
  return out;
}

struct Counts {
  std::size_t utc, standard, leaps, times, types, letters;
  [[nodiscard]] std::size_t bytes(std::size_t time_size) const {
    return times * (time_size + 1) + types * 6 + letters + leaps * (time_size + 4) + standard + utc;
  }
};

std::optional<Counts> read_header(std::string_view bytes) {
  if (bytes.size() < 44 || !bytes.starts_with("TZif")) return std::nullopt;
  const auto count = [&](std::size_t i) { return static_cast<std::size_t>(big_endian(bytes.substr(20 + 4 * i, 4)) & 0xFFFFFF); };
  return Counts{count(0), count(1), count(2), count(3), count(4), count(5)};
}

/// Reads the pieces of a rule in POSIX's form from the left.
struct RuleReader {
  std::string_view text;

  bool take(char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  }
  std::optional<std::string> name() {
    const bool quoted = take('<');
    std::size_t size = 0;
    while (size < text.size() && (quoted ? text[size] != '>' : (text[size] | 0x20) >= 'a' && (text[size] | 0x20) <= 'z')) ++size;
    if (size == 0) return std::nullopt;
    std::string out(text.substr(0, size));
    text.remove_prefix(size);
    if (quoted && !take('>')) return std::nullopt;
    return out;
  }
  std::optional<int> number() {
    int out = 0;
    std::size_t size = 0;
    while (size < text.size() && size < 4 && text[size] >= '0' && text[size] <= '9') out = out * 10 + (text[size++] - '0');
    if (size == 0) return std::nullopt;
    text.remove_prefix(size);
    return out;
  }
  /// [+-]h[:m[:s]] in seconds.
  std::optional<std::int32_t> clock() {
    const bool minus = take('-');
    if (!minus) take('+');
    std::int32_t out = 0;
    std::int32_t unit = 3600;
    do {
      const auto part = number();
      if (!part) return std::nullopt;
      out += *part * unit;
      unit /= 60;
    } while (unit > 0 && take(':'));
    return minus ? -out : out;
  }
};

}  // namespace

std::optional<TimeZone::Rule> TimeZone::parse_rule(std::string_view text) {
  RuleReader reader{text};
  Rule rule;
  const auto half = [&](ZoneOffset& offset, bool& has_clock) {
    auto name = reader.name();
    if (!name) return false;
    offset.abbreviation = *name;
    has_clock = !reader.text.empty() && reader.text[0] != ',';
    if (!has_clock) return true;
    const auto clock = reader.clock();
    if (clock) offset.seconds = -*clock;
    return clock.has_value();
  };
  bool has_clock = false;
  if (!half(rule.standard, has_clock) || !has_clock) return std::nullopt;
  if (reader.text.empty()) return rule;
  rule.summer.emplace();
  if (!half(*rule.summer, has_clock)) return std::nullopt;
  if (!has_clock) rule.summer->seconds = rule.standard.seconds + 3600;
  for (Change* change : {&rule.begin, &rule.end}) {
    if (!reader.take(',')) return std::nullopt;
    if (reader.take('M')) {
      const auto month = reader.number();
      const auto week = reader.take('.') ? reader.number() : std::nullopt;
      const auto day = reader.take('.') ? reader.number() : std::nullopt;
      if (!month || !week || !day) return std::nullopt;
      change->month = std::clamp(*month, 1, 12);
      change->week = *week;
      change->day = *day;
    } else {
      change->julian = reader.take('J');
      const auto day = reader.number();
      if (!day) return std::nullopt;
      change->day = *day;
    }
    if (reader.take('/')) {
      const auto time = reader.clock();
      if (!time) return std::nullopt;
      change->time = *time;
    }
  }
  return rule;
}

std::int64_t TimeZone::moment(const Change& change, int year) {
  std::int64_t day = days_of({year, 1, 1});
  if (change.month == 0) {
    day += change.day;
    if (change.julian && !(is_leap_year(year) && change.day >= 60)) --day;
  } else {
    const std::int64_t first = days_of({year, change.month, 1});
    day = first + (change.day - weekday_of(first) + 7) % 7 + (change.week - 1) * 7;
    while (day >= first + days_in_month(year, change.month)) day -= 7;
  }
  return day * 86400 + change.time;
}

ZoneOffset TimeZone::by_rule(std::int64_t unix_seconds) const {
  if (!rule_->summer) return rule_->standard;
  const int year = static_cast<int>(date_of(floor_div(unix_seconds + rule_->standard.seconds, 86400)).year);
  const std::int64_t begin = moment(rule_->begin, year) - rule_->standard.seconds;
  const std::int64_t end = moment(rule_->end, year) - rule_->summer->seconds;
  const bool summer = begin < end ? unix_seconds >= begin && unix_seconds < end : !(unix_seconds >= end && unix_seconds < begin);
  return summer ? *rule_->summer : rule_->standard;
}

std::shared_ptr<const TimeZone> TimeZone::parse(std::string_view bytes) {
  const auto old = read_header(bytes);
  if (!old) return nullptr;
  std::size_t time_size = 4;
  Counts counts = *old;
  if (bytes[4] >= '2') {
    const std::size_t skip = 44 + old->bytes(4);
    if (skip > bytes.size()) return nullptr;
    bytes.remove_prefix(skip);
    const auto header = read_header(bytes);
    if (!header) return nullptr;
    counts = *header;
    time_size = 8;
  }
  if (bytes.size() < 44 + counts.bytes(time_size) || counts.types == 0) return nullptr;
  auto zone = std::make_shared<TimeZone>();
  bytes.remove_prefix(44);
  const auto kinds = bytes.substr(counts.times * time_size, counts.times);
  const auto types = bytes.substr(counts.times * (time_size + 1), counts.types * 6);
  const auto letters = bytes.substr(counts.times * (time_size + 1) + counts.types * 6, counts.letters);
  for (std::size_t i = 0; i < counts.types; ++i) {
    const auto at = static_cast<unsigned char>(types[i * 6 + 5]);
    if (at >= letters.size()) return nullptr;
    const auto name = letters.substr(at);
    zone->offsets_.push_back({static_cast<std::int32_t>(big_endian(types.substr(i * 6, 4))), std::string(name.substr(0, name.find('\0')))});
  }
  for (std::size_t i = 0; i < counts.times; ++i) {
    const auto kind = static_cast<std::uint8_t>(kinds[i]);
    if (kind >= counts.types) return nullptr;
    zone->transitions_.push_back(big_endian(bytes.substr(i * time_size, time_size)));
    zone->kinds_.push_back(kind);
  }
  auto footer = bytes.substr(counts.bytes(time_size));
  if (time_size == 8 && footer.starts_with("\n")) {
    footer.remove_prefix(1);
    zone->rule_ = parse_rule(footer.substr(0, footer.find('\n')));
  }
  return zone;
}

ZoneOffset TimeZone::at(std::int64_t unix_seconds) const {
  const auto after = std::upper_bound(transitions_.begin(), transitions_.end(), unix_seconds);
  if (after == transitions_.end() && rule_) return by_rule(unix_seconds);
  if (after == transitions_.begin()) return offsets_.front();
  return offsets_[kinds_[static_cast<std::size_t>(after - transitions_.begin()) - 1]];
}

std::shared_ptr<const TimeZone> TimeZone::find(std::string_view name) {
  thread_local absl::flat_hash_map<std::string, std::shared_ptr<const TimeZone>> kept;
  const std::string key(name.empty() || name == "Local" ? "UTC" : name);
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  std::shared_ptr<const TimeZone> zone;
  if (key == "UTC") {
    auto utc = std::make_shared<TimeZone>();
    utc->offsets_.push_back({0, "UTC"});
    zone = std::move(utc);
  } else if (is_plain_name(key)) {
    std::ifstream file(text::cat("/usr/share/zoneinfo/", key), std::ios::binary);
    std::string bytes(kMostBytes, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
    zone = parse(bytes);
  }
  if (kept.size() >= kMostKept) kept.clear();
  if (zone) kept.emplace(key, zone);
  return zone;
}

}  // namespace openshell::policy::rego
