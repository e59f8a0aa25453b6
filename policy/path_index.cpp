#include "policy/path_index.hpp"

namespace openshell::policy {

void PathIndex::add(const Glob& glob, std::uint32_t item) {
  const std::string_view start = glob.beginning();
  if (glob.is_literal()) {
    literals_[std::string{start}].push_back(item);
    return;
  }
  const auto slash = start.rfind('/');
  if (slash == std::string_view::npos) {
    anywhere_.push_back(item);
    return;
  }
  const auto prefix = start.substr(0, slash + 1);
  prefixes_[std::string{prefix}].push_back(item);
  deepest_ = std::max(deepest_, static_cast<std::size_t>(std::count(prefix.begin(), prefix.end(), '/')));
}

}  // namespace openshell::policy
