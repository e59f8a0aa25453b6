#pragma once

#include <absl/status/status.h>

#include <string>
#include <string_view>

namespace openshell::cli {

inline constexpr std::string_view kDone = "\u2713";
inline constexpr std::string_view kWarning = "!";
inline constexpr std::string_view kFailed = "\u2717";
inline constexpr std::string_view kNotice = "\u2192";

enum class ColorChoice { automatic, always, never };

/// Decides once, from the choice, NO_COLOR, FORCE_COLOR, TERM and whether both streams are terminals, whether marks may be styled.
void choose_color(ColorChoice choice);

/// The mark, coloured where styling is on: green for kDone, yellow for kWarning, red for kFailed.
std::string mark(std::string_view sign);

/// One line to stdout, or to stderr.
void print(std::string_view line);
void note(std::string_view line);

/// `Error:   ✗ <text>` on stderr, never wrapped: callers match on the server's message.
void print_error(const absl::Status& status);

}  // namespace openshell::cli
