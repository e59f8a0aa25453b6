// A boundary check as its program prints it, and its command line. Pure; the program has files, clock and signals.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "policy/boundary/boundary.hpp"

namespace openshell::policy::boundary {

inline constexpr int kReportSchemaVersion = 1;
inline constexpr std::chrono::milliseconds kDefaultTimeout{10'000};

struct CheckCommand {
  std::string candidate, boundary;  ///< files
  bool json = false;
  std::chrono::milliseconds timeout = kDefaultTimeout;
  bool help = false;
};

/// The words after the program's name. INVALID_ARGUMENT says what is wrong and how it is used. `json` is set in `out` as soon as it is
/// read, so that a fault can be told in the form that was asked for.
absl::Status parse_command(std::span<const std::string_view> words, CheckCommand& out);
/// `10s`, `500ms`, `2m`; positive, at most a day.
absl::StatusOr<std::chrono::milliseconds> parse_timeout(std::string_view text);
[[nodiscard]] std::string_view usage();

/// 0 within, 1 exceeds, 2 error, 3 no answer, 130 cancelled.
[[nodiscard]] int exit_code(const Answer& answer);
/// Ends in a newline.
[[nodiscard]] std::string report(const CheckCommand& command, const Answer& answer, std::string_view version);

}  // namespace openshell::policy::boundary
