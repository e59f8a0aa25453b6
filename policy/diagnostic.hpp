// What the policy library says about a faulty policy: one sentence, the key it is about, the place in the file, and what to do.
#pragma once

#include <absl/status/status.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace openshell::policy {

/// Errors that one reading reports at most; then one line counts the rest.
inline constexpr std::size_t kMaxDiagnostics = 100;
/// Items and bytes (UTF-8) of a text that a supervisor reports to the gateway.
inline constexpr std::size_t kMaxSupervisorItems = 8;
inline constexpr std::size_t kMaxSupervisorBytes = 512;
/// Longest key path that a message shows, in bytes; longer ones are cut at a character and end in "...".
inline constexpr std::size_t kMaxShownPathBytes = 1024;
/// A key is offered as "did you mean" up to this many edits (insert, delete, replace a character).
inline constexpr std::size_t kMaxSuggestionDistance = 2;

enum class Severity { error, warning };

/// A place in a text, both from 1, columns in characters. Line 0: no text is known (a policy that came as protobuf).
struct Place {
  int line = 0;
  int column = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

/// One fault or warning.
struct Diagnostic {
  Severity severity = Severity::error;
  std::string path;     ///< The key, `network_policies.api.endpoints[0].port`; empty: the document.
  std::string message;  ///< One sentence. May quote authored values, see `field_fault`.
  std::string cure;     ///< The smallest change that helps, a clause; may be empty.
  std::string kind;     ///< The kind of fault without any authored value ("invalid port"), for texts that leave the supervisor.
  std::string file;     ///< As given to the parser; empty: protobuf.
  Place place;

  /// `FILE:LINE:COL: message; cure [key PATH]`, without the parts that are unknown or already named by the message.
  [[nodiscard]] std::string render() const;
};

/// Where each key of a parsed text stood. Paths as in Diagnostic::path.
class SourceMap {
 public:
  void set(std::string path, Place place) { places_.insert_or_assign(std::move(path), place); }
  /// The place of `path`, else of its nearest ancestor, else line 0.
  [[nodiscard]] Place find(std::string_view path) const;
  [[nodiscard]] bool empty() const noexcept { return places_.empty(); }

 private:
  std::map<std::string, Place, std::less<>> places_;
};

/// A list of diagnostics. Value type, single thread.
class Diagnostics {
 public:
  void add(Diagnostic diagnostic);
  Diagnostic& error(std::string path, std::string message, std::string cure = {}, std::string kind = {});
  Diagnostic& warning(std::string path, std::string message, std::string cure = {});
  void append(Diagnostics other);

  [[nodiscard]] bool has_errors() const noexcept { return errors_ > 0; }
  [[nodiscard]] std::size_t error_count() const noexcept { return errors_; }
  [[nodiscard]] bool empty() const noexcept { return items_.empty(); }
  [[nodiscard]] const std::vector<Diagnostic>& items() const noexcept { return items_; }
  [[nodiscard]] std::vector<std::string> messages(Severity severity = Severity::error) const;

  /// Fills in file and place of every item from a parsed text and orders the items by place (stable).
  void locate(const SourceMap& places, std::string_view file);

  /// One rendered line each, errors first 100 then `N more errors`; warnings only when asked for.
  [[nodiscard]] std::string render(bool with_warnings = false) const;

  /// OK without errors, else `code` with `prefix` and all error messages joined by `separator`. What the gateway answers.
  [[nodiscard]] absl::Status status(absl::StatusCode code, std::string_view prefix, std::string_view separator = "; ") const;

  /// `heading` + one line an error, at most kMaxSupervisorItems and kMaxSupervisorBytes. Names keys, fields and kinds, never an authored
  /// value besides the rule key: it ends in load_error and logs. Empty without errors.
  [[nodiscard]] std::string supervisor_text(std::string_view heading) const;

 private:
  std::vector<Diagnostic> items_;
  std::size_t errors_ = 0;
};

/// The nearest of `known` within kMaxSuggestionDistance edits of `word`, the first of equals; empty when none is near.
[[nodiscard]] std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

/// `text` cut to `limit` bytes at a character border, followed by "..." when something was cut.
[[nodiscard]] std::string shorten(std::string_view text, std::size_t limit);

}  // namespace openshell::policy
