// Time zones by name, read from the system's database (RFC 8536).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy::rego {

struct ZoneOffset {
  std::int32_t seconds = 0;  ///< East of UTC.
  std::string abbreviation;
};

class TimeZone {
 public:
  /// "" and "UTC" need no file; "Local" is UTC, so that an answer is the same on every machine. Null where there is none of that name. Kept
  /// for the thread.
  static std::shared_ptr<const TimeZone> find(std::string_view name);
  /// From the bytes of a TZif file; null where they are broken.
  static std::shared_ptr<const TimeZone> parse(std::string_view bytes);

  [[nodiscard]] ZoneOffset at(std::int64_t unix_seconds) const;

 private:
  /// One half of a rule like `CEST,M3.5.0/3`.
  struct Change {
    int month = 0, week = 0,
        day = 0;  ///< month 0: `day` counts from the year's first day instead (0..365; `julian`: 1..365 without a leap day).
    bool julian = false;
    std::int32_t time = 7200;
  };
  struct Rule {
    ZoneOffset standard;
    std::optional<ZoneOffset> summer;
    Change begin, end;
  };
  static std::optional<Rule> parse_rule(std::string_view text);
  static std::int64_t moment(const Change& change, int year);
  [[nodiscard]] ZoneOffset by_rule(std::int64_t unix_seconds) const;

  std::vector<std::int64_t> transitions_;
  std::vector<std::uint8_t> kinds_;
  std::vector<ZoneOffset> offsets_;
  std::optional<Rule> rule_;
};

}  // namespace openshell::policy::rego
