// Patterns to automata: read into tokens, build states with empty moves, then fold the empty moves away.
#include <algorithm>
#include <map>

#include "policy/glob.hpp"
#include "policy/glob_tokens.hpp"
#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

ByteSet only(unsigned char byte) {
  ByteSet set{};
  put(set, byte);
  return set;
}
ByteSet all_but(unsigned char byte) {
  ByteSet set;
  set.fill(~std::uint64_t{0});
  drop(set, byte);
  return set;
}

}  // namespace

class GlobCompiler {
 public:
  explicit GlobCompiler(GlobKind kind) : kind_{kind}, reader_{kind} {}

  absl::StatusOr<Glob> compile(std::string_view pattern) {
    if (pattern.size() > kMaxGlobBytes) return absl::InvalidArgumentError(cat("is longer than ", kMaxGlobBytes, " bytes"));
    if (is_path() && (pattern.empty() || pattern == "**" || pattern == "/**")) return Glob{};
    if (kind_ == GlobKind::binary && pattern.find('*') == std::string_view::npos) return literal_glob(std::string{pattern});
    if (kind_ == GlobKind::dotted && pattern == "**") return Glob{};
    // The commonest patterns are matched without an automaton, so none is built for them.
    dry_ = true;
    if (auto status = build(pattern); !status.ok()) return status;
    Glob glob;
    glob.kind_ = kind_;
    glob.rank_ = {literal_segments_, characters_};
    glob.prefix_ = prefix_;
    if (!wildcard_) {
      glob.form_ = Glob::Form::literal;
      return glob;
    }
    glob.form_ = prefix_only_ ? Glob::Form::prefix : is_segmented() && whole_segments_ ? Glob::Form::segments : Glob::Form::automaton;
    if (glob.form_ == Glob::Form::segments) glob.segments_ = std::move(segments_);
    find_suffix_form(pattern, glob);
    if (glob.form_ != Glob::Form::automaton) {
      glob.pattern_ = pattern;
      return glob;
    }
    if (const auto status = GlobCompiler{kind_}.add_automaton(pattern, glob); !status.ok()) return status;
    return glob;
  }

  absl::Status add_automaton(std::string_view pattern, Glob& glob) {
    if (const auto status = build(pattern); !status.ok()) return status;
    if (states_.size() > kMaxGlobStates || !fold(glob)) return absl::InvalidArgumentError("is invalid: it is too complex");
    return absl::OkStatus();
  }

 private:
  struct Edge {
    std::uint32_t set, to;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<std::uint32_t> empty;
  };

  absl::Status build(std::string_view pattern) { return is_segmented() ? build_segments(pattern) : build_flat(pattern); }

  [[nodiscard]] bool is_path() const { return reader_.is_path(); }
  [[nodiscard]] bool is_segmented() const { return reader_.is_segmented(); }
  [[nodiscard]] unsigned char delimiter() const { return is_segmented() ? '/' : '.'; }

  static Glob literal_glob(const std::string& text) {
    Glob glob;
    glob.form_ = Glob::Form::literal;
    glob.prefix_ = text;
    return glob;
  }

  // The commonest patterns are one wildcard before a plain rest.
  void find_suffix_form(std::string_view pattern, Glob& glob) const {
    if (!pattern.starts_with('*')) return;
    const bool recursive = pattern.starts_with("**");
    const std::string_view rest = pattern.substr(recursive ? 2 : 1);
    if (rest.find_first_of("*?[]{}\\") != std::string_view::npos || rest.size() < 2) return;
    if (kind_ == GlobKind::binary && recursive && rest.front() == '/') {
      glob.form_ = Glob::Form::path_suffix;
      glob.suffix_ = rest;
    } else if (kind_ == GlobKind::host && rest.front() == '.') {
      glob.form_ = recursive ? Glob::Form::any_suffix : Glob::Form::label_suffix;
      glob.suffix_ = text::lower(rest);
    }
  }

  // --- building
  // ------------------------------------------------------------------------------------------------------------------------------------

  std::uint32_t state() {
    if (dry_) return 0;
    states_.emplace_back();
    return static_cast<std::uint32_t>(states_.size() - 1);
  }
  void skip(std::uint32_t from, std::uint32_t to) {
    if (!dry_) states_[from].empty.push_back(to);
  }
  void edge(std::uint32_t from, const ByteSet& set, std::uint32_t to) {
    if (dry_) return;
    auto [found, fresh] = set_ids_.try_emplace(set, static_cast<std::uint32_t>(sets_.size()));
    if (fresh) sets_.push_back(set);
    states_[from].edges.push_back({found->second, to});
  }
  std::uint32_t literal(std::uint32_t from, std::string_view text) {
    for (const char c : text) {
      const auto to = state();
      edge(from, only(static_cast<unsigned char>(c)), to);
      from = to;
    }
    return from;
  }

  // One character out of `ascii` (and all above U+007F), in the spelling of this kind, from `from` to `to`.
  void one_character(std::uint32_t from, const ByteSet& ascii, bool beyond, std::uint32_t to) {
    ByteSet plain{};
    for (unsigned c = 0; c < 0x80; ++c) {
      if (!has(ascii, static_cast<unsigned char>(c))) continue;
      if (!is_path() || stays_literal(static_cast<unsigned char>(c))) {
        put(plain, static_cast<unsigned char>(c));
      } else if (c >= 0x20 && c != 0x7F) {
        std::string spelled;
        append_triplet(spelled, static_cast<unsigned char>(c));
        triplet_tree(from, spelled, to);
      }
    }
    edge(from, plain, to);
    if (!beyond) return;
    // UTF-8: a lead byte says how many follow.
    for (const auto& [first, last, following] : {std::array<unsigned, 3>{0xC2, 0xDF, 1}, {0xE0, 0xEF, 2}, {0xF0, 0xF4, 3}}) {
      std::uint32_t at = following == 0 ? to : state();
      byte_range(from, first, last, at);
      for (unsigned i = following; i > 0; --i) {
        const std::uint32_t next = i == 1 ? to : state();
        byte_range(at, 0x80, 0xBF, next);
        at = next;
      }
    }
  }
  void triplet_tree(std::uint32_t from, std::string_view spelled, std::uint32_t to) {
    const auto a = state();
    const auto b = state();
    edge(from, only('%'), a);
    edge(a, only(static_cast<unsigned char>(spelled[1])), b);
    edge(b, only(static_cast<unsigned char>(spelled[2])), to);
  }
  // A byte of `first`..`last`, plain or as %HH where paths are spelled so.
  void byte_range(std::uint32_t from, unsigned first, unsigned last, std::uint32_t to) {
    if (!is_path()) {
      ByteSet set{};
      put(set, first, last);
      edge(from, set, to);
      return;
    }
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto percent = state();
    edge(from, only('%'), percent);
    for (unsigned high = first >> 4U; high <= last >> 4U; ++high) {
      const auto mid = state();
      edge(percent, only(static_cast<unsigned char>(kDigits[high])), mid);
      ByteSet low{};
      for (unsigned digit = 0; digit < 16; ++digit) {
        const unsigned byte = high * 16 + digit;
        if (byte >= first && byte <= last) put(low, static_cast<unsigned char>(kDigits[digit]));
      }
      edge(mid, low, to);
    }
  }

  void build(const Token& token, std::uint32_t from, std::uint32_t to, bool nonempty) {
    switch (token.kind) {
      case Token::Kind::literal:
        skip(literal(from, token.literal), to);
        return;
      case Token::Kind::star:
      case Token::Kind::recursive: {
        ByteSet set = all_but(delimiter());
        if (token.kind == Token::Kind::recursive) put(set, delimiter());
        const auto loop = state();
        if (!nonempty) skip(from, loop);
        edge(from, set, loop);
        edge(loop, set, loop);
        skip(loop, to);
        return;
      }
      case Token::Kind::any: {
        ByteSet ascii{};
        put(ascii, 0, 0x7F);
        if (!is_path()) drop(ascii, delimiter());  // in a path '/' is %2F, which is a character of a segment
        one_character(from, ascii, true, to);
        return;
      }
      case Token::Kind::char_class:
        one_character(from, token.ascii, token.beyond_ascii, to);
        return;
      case Token::Kind::choice:
        for (const Tokens& branch : token.branches) sequence(branch, from, to, nonempty);
        return;
    }
  }

  // `tokens` from one state to the other; with `nonempty` only texts of at least one byte.
  void sequence(const Tokens& parts, std::uint32_t from, std::uint32_t to, bool nonempty) {
    if (dry_ || states_.size() > kMaxGlobStates) return;  // refused afterwards
    if (parts.empty()) {
      if (!nonempty) skip(from, to);
      return;
    }
    const bool guard = nonempty && std::all_of(parts.begin(), parts.end(), nullable);
    std::uint32_t at = guard ? state() : from;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::uint32_t next = i + 1 == parts.size() ? to : state();
      if (guard) build(parts[i], from, next, true);  // everything before it was empty
      if (!guard || i > 0) build(parts[i], at, next, false);
      at = next;
    }
  }

  // Paths and binaries: segment by segment.
  absl::Status build_segments(std::string_view pattern) {
    std::vector<std::string_view> segments;
    for (std::size_t at = 0; at <= pattern.size();) {
      const std::size_t end = std::min(pattern.find('/', at), pattern.size());
      segments.push_back(pattern.substr(at, end - at));
      at = end + 1;
    }
    start_ = state();
    std::uint32_t at = start_;
    bool counting = true;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const bool last = i + 1 == segments.size();
      if (segments[i] == "**") {
        if (!last && segments[i + 1] == "**") {  // two in a row mean the same as one
          characters_ += 1;
          continue;
        }
        segments_.push_back({Glob::Segment::Kind::recursive, {}});
        const auto loop = state();
        skip(at, loop);
        ByteSet everything;
        everything.fill(~std::uint64_t{0});
        edge(loop, everything, loop);
        if (last) {
          prefix_only_ = !wildcard_;
          wildcard_ = true;
          at = loop;
        } else {
          wildcard_ = true;
          const auto next = state();
          edge(loop, only('/'), next);
          skip(at, next);
          at = next;
          characters_ += 1;
        }
        counting = false;
        continue;
      }
      if (is_path() && segments[i].empty() && i > 0 && !last) return invalid_pattern("it holds an empty segment ('//')");
      auto parts = reader_.read(segments[i]);
      if (!parts.ok()) return parts.status();
      const bool plain = parts->empty() || (parts->size() == 1 && parts->front().kind == Token::Kind::literal);
      const std::string spelled = parts->empty() ? "" : parts->front().literal;
      const bool star = parts->size() == 1 && parts->front().kind == Token::Kind::star;
      whole_segments_ = whole_segments_ && (plain || star);
      segments_.push_back({plain ? Glob::Segment::Kind::literal : Glob::Segment::Kind::star, spelled});
      if (is_path() && plain) {
        if (const auto status = refuse_dots(spelled); !status.ok()) return status;
      }
      counting = counting && plain;
      if (counting && i > 0) ++literal_segments_;
      characters_ += static_cast<std::uint32_t>(plain ? spelled.size() : count_characters(*parts, segments[i])) + (last ? 0U : 1U);
      if (!wildcard_) {
        if (!parts->empty() && parts->front().kind == Token::Kind::literal) prefix_ += spelled;
        if (plain && !last) prefix_ += '/';
        wildcard_ = !plain;
      }
      const auto next = state();
      sequence(*parts, at, next, !segments[i].empty());
      at = next;
      if (!last) {
        const auto after = state();
        edge(at, only('/'), after);
        at = after;
      }
    }
    end_ = at;
    return absl::OkStatus();
  }

  static absl::Status refuse_dots(std::string_view segment) {
    for (std::size_t at = 0; at <= segment.size();) {
      const std::size_t end = std::min(segment.find("%2F", at), segment.size());
      const auto piece = segment.substr(at, end - at);
      if (piece == "." || piece == "..") return invalid_pattern("a '.' or '..' segment never occurs in a path");
      at = end + 3;
    }
    return absl::OkStatus();
  }

  // Characters other than `*` of a segment with wildcards: literals in their canonical spelling, the rest as written.
  static std::uint32_t count_characters(const Tokens& parts, std::string_view written) {
    std::uint32_t wild = static_cast<std::uint32_t>(std::count_if(written.begin(), written.end(), [](char c) { return c != '*'; }));
    std::uint32_t spelled = 0;
    bool simple = true;
    for (const Token& part : parts) {
      if (part.kind == Token::Kind::literal) spelled += static_cast<std::uint32_t>(part.literal.size());
      if (part.kind == Token::Kind::any) ++spelled;
      simple = simple && part.kind != Token::Kind::choice && part.kind != Token::Kind::char_class;
    }
    return simple ? spelled : wild;
  }

  // Dotted names and hosts: one run of tokens.
  absl::Status build_flat(std::string_view pattern) {
    std::string lowered;
    if (kind_ == GlobKind::host) {
      lowered = text::lower(pattern);
      pattern = lowered;
    }
    start_ = state();
    std::uint32_t at = start_;
    if (kind_ == GlobKind::host) return build_host(pattern, at);
    auto parts = reader_.read(pattern);
    if (!parts.ok()) return parts.status();
    for (const Token& part : *parts) {
      if (part.kind != Token::Kind::literal) wildcard_ = true;
      if (!wildcard_) prefix_ += part.literal;
    }
    end_ = state();
    sequence(*parts, at, end_, false);
    return absl::OkStatus();
  }

  absl::Status build_host(std::string_view pattern, std::uint32_t at) {
    bool first = true;
    while (true) {
      const auto dot = pattern.find('.');
      std::string_view label = pattern.substr(0, dot);
      const auto next = state();
      if (label == "**" && first) {
        ByteSet everything;
        everything.fill(~std::uint64_t{0});
        const auto loop = state();
        edge(at, everything, loop);
        edge(loop, everything, loop);
        skip(loop, next);
        wildcard_ = true;
      } else {
        auto parts = reader_.read(label);
        if (!parts.ok()) return parts.status();
        sequence(*parts, at, next, true);
        const bool plain = parts->size() == 1 && parts->front().kind == Token::Kind::literal;
        if (!wildcard_ && !parts->empty() && parts->front().kind == Token::Kind::literal) prefix_ += parts->front().literal;
        wildcard_ = wildcard_ || !plain;
      }
      first = false;
      at = next;
      if (dot == std::string_view::npos) break;
      if (!wildcard_) prefix_ += '.';
      const auto after = state();
      edge(at, only('.'), after);
      at = after;
      pattern.remove_prefix(dot + 1);
    }
    end_ = at;
    return absl::OkStatus();
  }

  // Empty moves folded into the edges of every state that can be entered. False: too many edges.
  [[nodiscard]] bool fold(Glob& glob) {
    glob.sets_ = sets_;
    glob.states_.clear();
    std::vector<std::uint32_t> numbers(states_.size(), UINT32_MAX);
    std::vector<std::uint32_t> order;
    const auto number = [&](std::uint32_t old) {
      if (numbers[old] == UINT32_MAX) {
        numbers[old] = static_cast<std::uint32_t>(order.size());
        order.push_back(old);
      }
      return numbers[old];
    };
    number(start_);
    std::vector<std::uint32_t> seen(states_.size(), UINT32_MAX);
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      Glob::State folded{static_cast<std::uint32_t>(glob.edges_.size()), 0, false};
      std::vector<std::uint32_t> stack{order[i]};
      seen[order[i]] = i;
      while (!stack.empty()) {
        const auto at = stack.back();
        stack.pop_back();
        if (at == end_) folded.accepting = true;
        for (const Edge& e : states_[at].edges) glob.edges_.push_back({e.set, number(e.to)});
        for (const auto to : states_[at].empty) {
          if (seen[to] == i) continue;
          seen[to] = i;
          stack.push_back(to);
        }
      }
      folded.edge_count = static_cast<std::uint32_t>(glob.edges_.size()) - folded.first_edge;
      glob.states_.push_back(folded);
      if (glob.edges_.size() > kMaxGlobEdges) return false;
    }
    return true;
  }

  GlobKind kind_;
  TokenReader reader_;
  std::vector<State> states_;
  std::vector<ByteSet> sets_;
  std::map<ByteSet, std::uint32_t> set_ids_;
  std::uint32_t start_ = 0;
  std::uint32_t end_ = 0;
  std::string prefix_;
  std::vector<Glob::Segment> segments_;
  bool dry_ = false;            ///< Nothing is built, the pattern is only read.
  bool whole_segments_ = true;  ///< Every segment is plain, `*` or `**`.
  bool wildcard_ = false;
  bool prefix_only_ = false;
  std::uint32_t literal_segments_ = 0;
  std::uint32_t characters_ = 0;
};

absl::StatusOr<Glob> Glob::compile(std::string_view pattern, GlobKind kind) { return GlobCompiler{kind}.compile(pattern); }

absl::Status Glob::build_automaton(Glob& glob) {
  if (!glob.states_.empty()) return absl::OkStatus();
  const std::string pattern = glob.pattern_;
  return GlobCompiler{glob.kind_}.add_automaton(pattern, glob);
}

}  // namespace openshell::policy
