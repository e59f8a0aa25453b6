#include "programs/supervisor/denial_lines.hpp"

#include <utility>

#include "policy/diagnostic.hpp"
#include "programs/supervisor/logging.hpp"

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
  if (out.size() <= DenialLines::kMaxLineBytes) return out;
  const auto cut = policy::shorten(out, DenialLines::kMaxLineBytes);
  return cut.substr(0, cut.size() - 3) + "...[truncated]";
}

void DenialLines::push(egress::ActivityEvent event) {
  if (event.at == egress::WallTime{}) event.at = std::chrono::system_clock::now();
  const std::lock_guard lock{mutex_};
  events_.push_front(std::move(event));
  if (events_.size() > kMaxLines) events_.pop_back();
}

std::vector<std::string> DenialLines::newest(std::size_t count) const {
  std::vector<std::string> out;
  const std::lock_guard lock{mutex_};
  for (const auto& event : events_) {
    if (out.size() == count) break;
    out.push_back(without_queries(file_line(event)));
  }
  return out;
}

}  // namespace openshell::supervisor
