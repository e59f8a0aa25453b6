// The patterns of a policy: request paths, binaries, dotted names and hosts, compiled to a small automaton each, or to something simpler
// where the pattern is simple.
//
// An automaton, not backtracking over bytes: a match costs time linear in the text whatever the pattern, and two patterns can be asked
// whether any text matches both (overlapping endpoints). Immutable after compile, any thread.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace openshell::policy {

/// States and edges one pattern may compile to; a larger one is refused.
inline constexpr std::size_t kMaxGlobStates = 16'384;
inline constexpr std::size_t kMaxGlobEdges = 32'768;
/// Length of a pattern in bytes.
inline constexpr std::size_t kMaxGlobBytes = 4096;
/// Nested braces in a dotted pattern (path patterns have none nested).
inline constexpr std::size_t kMaxGlobNesting = 8;
/// State pairs that an overlap question visits before it is answered "yes" (the safe answer: more is compared, more is refused).
inline constexpr std::size_t kMaxOverlapStates = 1'000'000;

enum class GlobKind : std::uint8_t {
  path,                ///< HTTP path, compared in canonical form; `%2F` in a pattern is an error.
  path_encoded_slash,  ///< The same where the endpoint allows encoded slashes.
  binary,              ///< Executable path, compared byte by byte. Without `*` a plain string.
  dotted,              ///< Query values, GraphQL and MCP names: `*` stops at a dot, `**` does not.
  host                 ///< Host pattern, case-insensitive; `*` stays in a label, a first label `**` is one or more labels.
};

/// How specific a path pattern is: whole literal segments before the first wildcard, then characters that are not `*`. Larger is more
/// specific.
struct PathRank {
  std::uint32_t literal_segments = 0;
  std::uint32_t characters = 0;
  friend auto operator<=>(const PathRank&, const PathRank&) = default;
};

class Glob {
 public:
  Glob() = default;  ///< Matches everything.

  /// INVALID_ARGUMENT: the message is the tail of a sentence about the pattern, `has unclosed '['` or `is invalid: REASON`.
  static absl::StatusOr<Glob> compile(std::string_view pattern, GlobKind kind);

  [[nodiscard]] bool matches(std::string_view text) const;
  [[nodiscard]] bool matches_everything() const noexcept { return form_ == Form::everything; }
  [[nodiscard]] bool is_literal() const noexcept { return form_ == Form::literal; }
  /// Text that every match begins with; of a literal all of it.
  [[nodiscard]] std::string_view beginning() const noexcept { return prefix_; }
  /// Of a path pattern; (0, 0) for one that matches everything.
  [[nodiscard]] PathRank rank() const noexcept { return rank_; }

  /// True when some text matches both. Only for patterns of the same family (the two path kinds are one).
  [[nodiscard]] static bool overlap(const Glob& a, const Glob& b);

 private:
  enum class Form : std::uint8_t { everything, literal, prefix, segments, path_suffix, label_suffix, any_suffix, automaton };
  struct Segment {
    enum class Kind : std::uint8_t { literal, star, recursive } kind = Kind::literal;
    std::string text;
  };
  using ByteSet = std::array<std::uint64_t, 4>;
  struct Edge {
    std::uint32_t set;
    std::uint32_t to;
  };
  struct State {
    std::uint32_t first_edge = 0;
    std::uint32_t edge_count = 0;
    bool accepting = false;
  };
  friend class GlobCompiler;
  friend class GlobWalk;  // boundary/atoms.cpp: many patterns at once
  [[nodiscard]] bool run(std::string_view text) const;
  [[nodiscard]] bool by_segments(std::string_view text) const;
  /// For questions that need one where matching does not.
  static absl::Status build_automaton(Glob& glob);

  Form form_ = Form::everything;
  GlobKind kind_ = GlobKind::path;
  PathRank rank_;
  std::string prefix_;  ///< Every match begins with it.
  std::string
      suffix_;  ///< The three suffix forms (`**/curl`, `*.x.test`, `**.x.test`): what every match ends in, decided without the automaton.
  std::vector<Segment> segments_;  ///< `/v1/*/items/**`: matched segment by segment.
  std::string pattern_;            ///< As written, where no automaton was built.
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<ByteSet> sets_;
};

}  // namespace openshell::policy
