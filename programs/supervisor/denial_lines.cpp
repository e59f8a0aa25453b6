#include "programs/supervisor/denial_lines.hpp"

#include "policy/diagnostic.hpp"

namespace openshell::supervisor {

std::string without_queries(std::string_view line) {
  std::string out;
  while (true) {
    const auto mark = line.find('?');
    out += line.substr(0, mark);
    if (mark == std::string_view::npos) break;
    out += "?[redacted]";
    const auto end = line.find_first_of(" \t\n]", mark);
    if (end == std::string_view::npos) break;
    line.remove_prefix(end);
  }
  const auto cut = policy::shorten(out, DenialLines::kMaxLineBytes);
  return cut.size() == out.size() ? out : cut.substr(0, cut.size() - 3) + "...[truncated]";
}

void DenialLines::push(std::string line) {
  line = without_queries(line);
  const std::lock_guard lock{mutex_};
  lines_.push_front(std::move(line));
  if (lines_.size() > kMaxLines) lines_.pop_back();
}

std::vector<std::string> DenialLines::newest(std::size_t count) const {
  const std::lock_guard lock{mutex_};
  return {lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(std::min(count, lines_.size()))};
}

}  // namespace openshell::supervisor
