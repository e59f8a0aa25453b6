#include "programs/supervisor/decision_log.hpp"

#include "egress/generation.hpp"
#include "policy/decision_record.hpp"

namespace openshell::supervisor {

void DecisionLog::decided(const egress::Generation& generation, const policy::Destination& destination, const policy::Request* request,
                          policy::Verdict verdict) noexcept {
  try {
    const auto now = now_();
    auto line = policy::record_line(now, generation.number, generation.hash.str(), destination, request, policy::decision_of(verdict));
    auto kept = line.empty() ? nullptr : std::make_shared<const std::string>(std::move(line));
    const std::lock_guard lock{mutex_};
    if (kept == nullptr) {
      ++dropped_;
    } else {
      keep({now, std::move(kept)});
    }
  } catch (...) {  // out of memory for a record: the record is lost, the traffic is not
  }
}

void DecisionLog::keep(Entry entry) {
  bytes_ += entry.line->size();
  entries_.push_back(std::move(entry));
  while (entries_.size() > limits_.records || bytes_ > limits_.bytes) {
    bytes_ -= entries_.front().line->size();
    entries_.pop_front();
    ++dropped_;
  }
}

DecisionLog::Snapshot DecisionLog::snapshot(std::optional<WallTime> since, std::size_t limit) const {
  Snapshot out;
  const std::lock_guard lock{mutex_};
  out.dropped = dropped_;
  auto first = entries_.begin();
  if (entries_.size() > limit) first += static_cast<std::ptrdiff_t>(entries_.size() - limit);
  out.lines.reserve(static_cast<std::size_t>(entries_.end() - first));
  for (; first != entries_.end(); ++first) {
    if (!since || first->time >= *since) out.lines.push_back(first->line);
  }
  return out;
}

}  // namespace openshell::supervisor
