// Log lines of a program: one line an event, to standard error, as text for people or JSON for machines.
//
//   log::info("gateway listening", {{"endpoint", endpoint}});
//
// Thread-safe; a line is written whole. What looks like a token or an Authorization value is masked before it leaves the process, so that a
// careless message leaks nothing; the rule stays that no secret is given to the log at all (a Secret can not be).
#pragma once

#include <absl/status/statusor.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace openshell::log {

enum class Level { kTrace, kDebug, kInfo, kWarning, kError, kOff };
enum class Format { kText, kJson };

struct Options {
  Level level = Level::kInfo;
  Format format = Format::kText;
  std::string program;  ///< first word of a line: "openshell-gateway"
};

/// `error`, `warn`, `info`, `debug`, `trace`, `off`; of a filter directive (`info,openshell=debug`) the first plain level counts.
/// INVALID_ARGUMENT names the text.
absl::StatusOr<Level> parse_level(std::string_view text);
/// Before it, lines go out as text at level info. Once a process.
void init(const Options& options);

using Field = std::pair<std::string_view, std::string>;
bool enabled(Level level);
void write(Level level, std::string_view message, std::initializer_list<Field> fields = {});

inline void debug(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::kDebug, message, fields); }
inline void info(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::kInfo, message, fields); }
inline void warning(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::kWarning, message, fields); }
inline void error(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::kError, message, fields); }

/// The text with everything masked that has the shape of a secret: JSON web tokens, the credentials of an Authorization value, PEM private
/// keys. For printers of foreign text.
std::string redacted(std::string_view text);

}  // namespace openshell::log
