#include "policy/path_index.hpp"

namespace openshell::policy {

PathIndex::Items& PathIndex::list_of(const Glob& glob) {
  const std::string_view start = glob.beginning();
  if (glob.is_literal()) return literals_[std::string{start}];
  const auto slash = start.rfind('/');
  if (slash == std::string_view::npos) return anywhere_;
  const auto prefix = start.substr(0, slash + 1);
  deepest_ = std::max(deepest_, static_cast<std::size_t>(std::count(prefix.begin(), prefix.end(), '/')));
  return prefixes_[std::string{prefix}];
}

void PathIndex::add(const Glob& glob, std::uint32_t item) { list_of(glob).push_back(item); }

void PathIndex::add_once(const Glob& glob, std::uint32_t item) {
  auto& items = list_of(glob);
  if (items.empty() || items.back() != item) items.push_back(item);
}

}  // namespace openshell::policy
