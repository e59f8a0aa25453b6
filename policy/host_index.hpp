// Which endpoints name a host and port: names by one look-up, patterns by a tree of labels read from the right. Immutable after finish(),
// any thread; finding allocates nothing. Internal to the matcher.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/glob.hpp"

namespace openshell::policy {

/// The endpoints of one host or pattern, by number.
struct HostEntry {
  std::vector<std::pair<std::uint16_t, std::uint32_t>> by_port;  ///< sorted
  std::vector<std::uint32_t> all;                                ///< on any port, rising

  void add(std::span<const std::uint16_t> ports, std::uint32_t endpoint);
  void finish();
  template <class Use>
  void on_port(std::uint16_t port, Use&& use) const {
    for (auto at = std::lower_bound(by_port.begin(), by_port.end(), std::pair{port, std::uint32_t{0}});
         at != by_port.end() && at->first == port; ++at) {
      use(at->second);
    }
  }
};

class HostIndex {
 public:
  HostIndex() : nodes_(1) {}

  /// Endpoint numbers rise. `host` is in compared form.
  void add_exact(std::string_view host, std::span<const std::uint16_t> ports, std::uint32_t endpoint);
  /// INVALID_ARGUMENT: the pattern does not parse.
  absl::Status add_pattern(std::string_view pattern, std::span<const std::uint16_t> ports, std::uint32_t endpoint);
  void finish();
  /// Calls `use(const HostEntry&)` for every host and pattern; after finish() they stay where they are.
  template <class Use>
  void each(Use&& use) const {
    for (const auto& [host, entry] : exact_) use(entry);
    for (const auto& entry : entries_) use(entry);
  }

  [[nodiscard]] const HostEntry* exact(std::string_view host) const {
    const auto found = exact_.find(view(host));
    return found == exact_.end() ? nullptr : &found->second;
  }
  /// Calls `use(const HostEntry&)` for every pattern that `host` matches.
  template <class Use>
  void patterns(std::string_view host, Use&& use) const {
    if (entries_.empty() || host.empty()) return;
    walk(0, host, use);
    for (const auto& [glob, entry] : odd_) {
      if (glob.matches(host)) use(entries_[entry]);
    }
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Partial {  // a first label that is a pattern itself, `t-*`
    Glob label;
    std::uint32_t entry;
  };
  struct Node {
    absl::flat_hash_map<std::string, std::uint32_t> labels;
    std::uint32_t star = kNone;       // any one label
    std::uint32_t entry = kNone;      // a pattern begins here
    std::uint32_t recursive = kNone;  // one or more labels before this one
    std::vector<Partial> partial;
  };

  static absl::string_view view(std::string_view text) { return {text.data(), text.size()}; }
  std::uint32_t child(std::uint32_t node, std::string_view label);
  std::uint32_t entry_of(const std::string& pattern);

  template <class Use>
  void walk(std::uint32_t at, std::string_view rest, Use& use) const {
    const Node& node = nodes_[at];
    const auto dot = rest.rfind('.');
    const bool last = dot == std::string_view::npos;
    const auto label = last ? rest : rest.substr(dot + 1);
    if (node.recursive != kNone) use(entries_[node.recursive]);
    if (last) {
      for (const auto& partial : node.partial) {
        if (partial.label.matches(label)) use(entries_[partial.entry]);
      }
    }
    const auto go = [&](std::uint32_t next) {
      if (!last) {
        walk(next, rest.substr(0, dot), use);
      } else if (nodes_[next].entry != kNone) {
        use(entries_[nodes_[next].entry]);
      }
    };
    if (const auto found = node.labels.find(view(label)); found != node.labels.end()) go(found->second);
    if (node.star != kNone && !label.empty()) go(node.star);
  }

  absl::flat_hash_map<std::string, HostEntry> exact_;
  std::deque<Node> nodes_;  // the root first
  std::vector<HostEntry> entries_;
  std::vector<std::pair<Glob, std::uint32_t>> odd_;  // what no checked policy has, but what means something
  absl::flat_hash_map<std::string, std::uint32_t> known_;
};

}  // namespace openshell::policy
