#include "actors/gateway/denial_index.hpp"

#include "actors/gateway/times.hpp"

namespace openshell::gateway {

void DenialIndex::add(const openshell::v1::SandboxLogLine& line) {
  const auto field = line.fields().find("denial_id");
  if (field == line.fields().end() || field->second.empty() || field->second.size() > kMaxDenialId || by_id_.contains(field->second))
    return;
  DenialLine kept;
  kept.denial_id = field->second;
  kept.sandbox_id = line.sandbox_id();
  kept.text = line.message().substr(0, kMaxDenialText);
  kept.at = to_millis(line.event_time());
  lines_.push_back(std::move(kept));
  by_id_.emplace(field->second, std::prev(lines_.end()));
  if (lines_.size() <= kMaxDenialLines) return;
  by_id_.erase(lines_.front().denial_id);
  lines_.pop_front();
}

DenialLines DenialIndex::find(const std::string& denial_id) const {
  DenialLines out;
  if (denial_id.empty()) {
    for (auto it = lines_.rbegin(); it != lines_.rend() && out.lines.size() < kMaxListedDenials; ++it) out.lines.push_back(*it);
  } else if (const auto found = by_id_.find(denial_id); found != by_id_.end()) {
    out.lines.push_back(*found->second);
  }
  return out;
}

void DenialIndex::forget(const std::string& sandbox_id) {
  for (auto it = lines_.begin(); it != lines_.end();) {
    if (it->sandbox_id == sandbox_id) {
      by_id_.erase(it->denial_id);
      it = lines_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace openshell::gateway
