#include "policy/boundary/atoms.hpp"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "policy/glob_tokens.hpp"

namespace openshell::policy {
namespace {

using boundary::Atom;

constexpr std::uint8_t kDead = 0xff;

// Which texts occur at all, as a small automaton. Components of a path: state 1 is their beginning, 2 and 3 follow `.` and `..`, 4 is
// inside; 5 follows `%`, 16 and more its first digit.
class Shape {
 public:
  explicit Shape(GlobKind kind) : kind_{kind} {}

  [[nodiscard]] bool accepts(std::uint8_t state) const {
    switch (kind_) {
      case GlobKind::path:
      case GlobKind::path_encoded_slash:
        return state == 1 || state == 4;
      case GlobKind::binary:
      case GlobKind::host:
        return state == 4;
      default:
        return true;
    }
  }

  [[nodiscard]] std::uint8_t step(std::uint8_t state, unsigned char c) const {
    switch (kind_) {
      case GlobKind::path:
      case GlobKind::path_encoded_slash:
        return component(state, c, c == '.' || stays_literal(c), true);
      case GlobKind::binary:
        return component(state, c, c > ' ' && c < 0x7f, false);
      case GlobKind::host:
        if (c == '.') return state == 4 ? 0 : kDead;
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ? 4 : kDead;
      default:
        return c >= ' ' && c < 0x7f ? 0 : kDead;
    }
  }

 private:
  [[nodiscard]] static int digit(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }

  [[nodiscard]] static std::uint8_t component(std::uint8_t state, unsigned char c, bool plain, bool triplets) {
    if (state == 0) return c == '/' ? 1 : kDead;
    if (state >= 16 || state == 5) {  // `%HH`: only of bytes that are not written plainly
      const int value = digit(c);
      if (value < 0) return kDead;
      if (state == 5) return static_cast<std::uint8_t>(16 + value);
      const auto byte = static_cast<unsigned char>((state - 16) * 16 + value);
      return byte == 0 || byte == '/' || stays_literal(byte) ? kDead : 4;
    }
    if (c == '/') return state == 4 ? 1 : kDead;
    if (triplets && c == '%') return 5;
    if (!plain) return kDead;
    if (c == '.' && state < 3) return static_cast<std::uint8_t>(state + 1);
    return 4;
  }

  GlobKind kind_;
};

// Letters first: an example should read well.
std::array<unsigned char, 256> by_taste() {
  std::array<unsigned char, 256> out{};
  std::size_t n = 0;
  const auto put_all = [&](auto&& want) {
    for (unsigned c = 0; c < 256; ++c) {
      if (want(static_cast<char>(c))) out[n++] = static_cast<unsigned char>(c);
    }
  };
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto number = [](char c) { return c >= '0' && c <= '9'; };
  const auto slash = [](char c) { return c == '/'; };
  put_all(lower);
  put_all(slash);
  put_all(number);
  put_all([&](char c) { return !lower(c) && !number(c) && !slash(c); });
  return out;
}

}  // namespace

class GlobWalk {
 public:
  GlobWalk(std::span<const Glob* const> globs, GlobKind kind, const std::function<bool()>& stop)
      : globs_{globs}, shape_{kind}, stop_{stop} {}

  absl::StatusOr<std::vector<Atom>> run() {
    if (const auto status = prepare(); !status.ok()) return status;
    Live first;
    for (std::uint32_t i = 0; i < automata_.size(); ++i) {
      if (!automata_[i].matches_everything()) first.emplace_back(i, 0);
    }
    visit(std::move(first), 0, 0, 0);
    for (std::uint32_t at = 0; at < nodes_.size(); ++at) {
      if (at % 1000 == 999 && stop_ && stop_()) return absl::CancelledError("stopped while patterns were compared");
      if (nodes_.size() > boundary::kMaxAtomStates) return absl::ResourceExhaustedError("the patterns together have too many states");
      for (const auto byte : alphabet_) {
        const std::uint8_t shape = shape_.step(nodes_[at].shape, byte);
        if (shape != kDead) visit(next(nodes_[at].live, byte), shape, at, byte);
      }
    }
    return std::move(atoms_);
  }

 private:
  using Live = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // pattern and its state, rising
  struct Node {
    Live live;
    std::uint8_t shape;
    std::uint32_t parent;
    unsigned char byte;
  };

  absl::Status prepare() {
    std::vector<ByteSet> sets;
    absl::flat_hash_set<std::string> known;
    const auto note = [&](const ByteSet& set) {
      if (known.emplace(reinterpret_cast<const char*>(set.data()), sizeof(set)).second) sets.push_back(set);
    };
    for (const Glob* glob : globs_) {
      automata_.push_back(*glob);
      Glob& own = automata_.back();
      if (own.matches_everything()) continue;
      if (own.is_literal()) {
        for (const char c : own.prefix_) {
          ByteSet set{};
          put(set, static_cast<unsigned char>(c));
          note(set);
        }
        continue;
      }
      if (auto status = Glob::build_automaton(own); !status.ok()) return status;
      for (const auto& set : own.sets_) note(set);
    }
    find_alphabet(sets);
    return absl::OkStatus();
  }

  // One byte for all that neither the patterns nor the shape tell from it.
  void find_alphabet(const std::vector<ByteSet>& sets) {
    absl::flat_hash_set<std::string> seen;
    for (const unsigned char c : by_taste()) {
      std::string mark;
      for (const auto& set : sets) mark.push_back(has(set, c) ? '1' : '0');
      for (unsigned state = 0; state < 32; ++state) mark.push_back(static_cast<char>(shape_.step(static_cast<std::uint8_t>(state), c)));
      if (seen.insert(std::move(mark)).second) alphabet_.push_back(c);
    }
  }

  [[nodiscard]] Live next(const Live& live, unsigned char byte) const {
    Live out;
    for (const auto& [i, state] : live) {
      const Glob& glob = automata_[i];
      if (glob.is_literal()) {
        if (state < glob.prefix_.size() && static_cast<unsigned char>(glob.prefix_[state]) == byte) out.emplace_back(i, state + 1);
        continue;
      }
      const auto& at = glob.states_[state];
      for (std::uint32_t k = 0; k < at.edge_count; ++k) {
        const auto& edge = glob.edges_[at.first_edge + k];
        if (has(glob.sets_[edge.set], byte)) out.emplace_back(i, edge.to);
      }
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  void visit(Live live, std::uint8_t shape, std::uint32_t parent, unsigned char byte) {
    std::string key(1, static_cast<char>(shape));
    key.append(reinterpret_cast<const char*>(live.data()), live.size() * sizeof(Live::value_type));
    if (!known_.insert(std::move(key)).second) return;
    nodes_.push_back({std::move(live), shape, parent, byte});
    if (!shape_.accepts(shape)) return;
    Atom atom{{}, matched_by(nodes_.back().live)};
    if (!found_.insert(atom.matched).second) return;
    for (auto at = static_cast<std::uint32_t>(nodes_.size() - 1); at != 0; at = nodes_[at].parent) {
      atom.text.push_back(static_cast<char>(nodes_[at].byte));
    }
    std::reverse(atom.text.begin(), atom.text.end());
    atoms_.push_back(std::move(atom));
  }

  [[nodiscard]] std::vector<std::uint32_t> matched_by(const Live& live) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < automata_.size(); ++i) {
      if (automata_[i].matches_everything()) out.push_back(i);
    }
    for (const auto& [i, state] : live) {
      const Glob& glob = automata_[i];
      const bool accepting = glob.is_literal() ? state == glob.prefix_.size() : glob.states_[state].accepting;
      if (accepting && (out.empty() || out.back() != i)) out.push_back(i);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  std::span<const Glob* const> globs_;
  Shape shape_;
  const std::function<bool()>& stop_;
  std::vector<Glob> automata_;
  std::vector<unsigned char> alphabet_;
  std::vector<Node> nodes_;
  absl::flat_hash_set<std::string> known_;
  absl::flat_hash_set<std::vector<std::uint32_t>> found_;
  std::vector<Atom> atoms_;
};

namespace boundary {

absl::StatusOr<std::vector<Atom>> atoms_of(std::span<const Glob* const> globs, GlobKind kind, const std::function<bool()>& stop) {
  return GlobWalk{globs, kind, stop}.run();
}

}  // namespace boundary
}  // namespace openshell::policy
