#include "policy/glob.hpp"

#include <absl/container/flat_hash_set.h>

#include <algorithm>

namespace openshell::policy {
namespace {

// Working memory of one thread, kept so that a match does not allocate.
struct Scratch {
  std::vector<std::uint32_t> marks;
  std::uint32_t stamp = 0;
  std::vector<std::uint32_t> now;
  std::vector<std::uint32_t> next;

  void fit(std::size_t states) {
    if (marks.size() < states) marks.resize(states, 0);
  }
  void begin_step() {
    if (++stamp == 0) {
      std::fill(marks.begin(), marks.end(), 0);
      stamp = 1;
    }
    next.clear();
  }
  void add(std::uint32_t state) {
    if (marks[state] == stamp) return;
    marks[state] = stamp;
    next.push_back(state);
  }
};
thread_local Scratch scratch;

template <class Set>
bool contains(const Set& set, unsigned char byte) {
  return ((set[byte >> 6U] >> (byte & 63U)) & 1U) != 0;
}

}  // namespace

bool Glob::matches(std::string_view text) const {
  switch (form_) {
    case Form::everything:
      return true;
    case Form::literal:
      return text == prefix_;
    case Form::prefix:
      return text.starts_with(prefix_);
    case Form::segments:
      return text.starts_with(prefix_) && by_segments(text);
    case Form::path_suffix:
      return text.ends_with(suffix_) || text == std::string_view{suffix_}.substr(1);
    case Form::any_suffix:
      return text.size() > suffix_.size() && text.ends_with(suffix_);
    case Form::label_suffix:
      return text.size() > suffix_.size() && text.ends_with(suffix_) && text.find('.') == text.size() - suffix_.size();
    case Form::automaton:
      return text.starts_with(prefix_) && run(text);
  }
  return false;
}

bool Glob::run(std::string_view text) const {
  Scratch& s = scratch;
  s.fit(states_.size());
  s.now.assign(1, 0);
  for (const char c : text) {
    s.begin_step();
    for (const auto at : s.now) {
      const State& state = states_[at];
      for (std::uint32_t i = 0; i < state.edge_count; ++i) {
        const Edge& edge = edges_[state.first_edge + i];
        if (contains(sets_[edge.set], static_cast<unsigned char>(c))) s.add(edge.to);
      }
    }
    if (s.next.empty()) return false;
    s.now.swap(s.next);
  }
  return std::any_of(s.now.begin(), s.now.end(), [this](std::uint32_t at) { return states_[at].accepting; });
}

// A `**` takes as few segments as the rest allows, and one more whenever the rest does not fit.
bool Glob::by_segments(std::string_view text) const {
  constexpr std::size_t kNone = SIZE_MAX;
  const auto end_of = [text](std::size_t begin) { return std::min(text.find('/', begin), text.size()); };
  std::size_t part = 0, begin = 0;                // next of the pattern, next of the text; beyond the text: nothing is left of it
  std::size_t recursive = kNone, taken_from = 0;  // the last `**`, and where what it did not take begins
  while (begin <= text.size()) {
    const bool more = part < segments_.size();
    if (more && segments_[part].kind == Segment::Kind::recursive) {
      if (part + 1 == segments_.size()) return true;
      recursive = part++;
      taken_from = begin;
      continue;
    }
    const std::size_t end = end_of(begin);
    const auto segment = text.substr(begin, end - begin);
    if (more && (segments_[part].kind == Segment::Kind::star ? !segment.empty() : segments_[part].text == segment)) {
      ++part;
      begin = end + 1;
      continue;
    }
    if (recursive == kNone) return false;
    taken_from = end_of(taken_from) + 1;
    begin = taken_from;
    part = recursive + 1;
  }
  // A `**` that is not the last may stand for nothing.
  while (part + 1 < segments_.size() && segments_[part].kind == Segment::Kind::recursive) ++part;
  return part == segments_.size();
}

bool Glob::overlap(const Glob& a, const Glob& b) {
  if (a.matches_everything() || b.matches_everything()) return true;
  if (a.is_literal()) return b.matches(a.prefix_);
  if (b.is_literal()) return a.matches(b.prefix_);
  const std::size_t common = std::min(a.prefix_.size(), b.prefix_.size());
  if (std::string_view{a.prefix_}.substr(0, common) != std::string_view{b.prefix_}.substr(0, common)) return false;
  if (a.states_.empty() || b.states_.empty()) {
    Glob left = a, right = b;
    return !build_automaton(left).ok() || !build_automaton(right).ok() || overlap(left, right);
  }
  // Both automata at once: a pair of states is reachable when some text leads there.
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  absl::flat_hash_set<Pair> seen{{0, 0}};
  std::vector<Pair> stack{{0, 0}};
  while (!stack.empty()) {
    const auto [x, y] = stack.back();
    stack.pop_back();
    const State& sx = a.states_[x];
    const State& sy = b.states_[y];
    if (sx.accepting && sy.accepting) return true;
    if (seen.size() > kMaxOverlapStates) return true;
    for (std::uint32_t i = 0; i < sx.edge_count; ++i) {
      const Edge& ex = a.edges_[sx.first_edge + i];
      for (std::uint32_t j = 0; j < sy.edge_count; ++j) {
        const Edge& ey = b.edges_[sy.first_edge + j];
        const auto& p = a.sets_[ex.set];
        const auto& q = b.sets_[ey.set];
        if (((p[0] & q[0]) | (p[1] & q[1]) | (p[2] & q[2]) | (p[3] & q[3])) == 0) continue;
        if (seen.insert({ex.to, ey.to}).second) stack.emplace_back(ex.to, ey.to);
      }
    }
  }
  return false;
}

}  // namespace openshell::policy
