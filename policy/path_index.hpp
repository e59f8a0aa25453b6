// Finds, among many path patterns, the few that could match a path: by their literal text, or by the whole segments before their first
// wildcard. Immutable after the last add, any thread. Internal to the compiled rules.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/glob.hpp"

namespace openshell::policy {

class PathIndex {
 public:
  /// `item` numbers rise.
  void add(const Glob& glob, std::uint32_t item);
  /// The same for an item of several patterns, added one after the other: it stands once in each list.
  void add_once(const Glob& glob, std::uint32_t item);

  /// Calls `use(items)` with lists of rising numbers that hold together every item whose pattern matches `path`, and others.
  template <class Use>
  void candidates(std::string_view path, Use&& use) const {
    if (!anywhere_.empty()) use(anywhere_);
    if (const auto found = literals_.find(view(path)); found != literals_.end()) use(found->second);
    if (prefixes_.empty()) return;
    std::size_t slashes = 0;
    for (std::size_t at = path.find('/'); at != std::string_view::npos && slashes < deepest_; at = path.find('/', at + 1)) {
      ++slashes;
      if (const auto found = prefixes_.find(view(path.substr(0, at + 1))); found != prefixes_.end()) use(found->second);
    }
  }

 private:
  using Items = std::vector<std::uint32_t>;
  Items& list_of(const Glob& glob);
  static absl::string_view view(std::string_view text) { return {text.data(), text.size()}; }

  absl::flat_hash_map<std::string, Items> literals_;
  absl::flat_hash_map<std::string, Items> prefixes_;  ///< by text up to and with a slash
  Items anywhere_;
  std::size_t deepest_ = 0;  ///< slashes of the longest prefix
};

}  // namespace openshell::policy
